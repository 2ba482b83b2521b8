"""The text of distributed modules: kinds, operators, sharding, files of a tf.data service. No TensorFlow."""
