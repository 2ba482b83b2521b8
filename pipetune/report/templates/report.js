(function () {
  "use strict";
  var root = document.documentElement;

  function remembered() {
    try { return window.localStorage.getItem("pipetune-scheme"); } catch (error) { return null; }
  }
  function remember(scheme) {
    try { window.localStorage.setItem("pipetune-scheme", scheme); } catch (error) { /* a page without storage */ }
  }
  function dark() {
    var chosen = root.dataset.scheme;
    return chosen ? chosen === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
  }
  var chosen = remembered();
  if (chosen === "dark" || chosen === "light") { root.dataset.scheme = chosen; }
  var toggle = document.getElementById("scheme");
  toggle.hidden = false;
  toggle.addEventListener("click", function () {
    root.dataset.scheme = dark() ? "light" : "dark";
    remember(root.dataset.scheme);
  });

  document.querySelectorAll("[data-copy]").forEach(function (button) {
    var label = button.textContent;
    button.hidden = false;
    button.addEventListener("click", function () {
      var source = document.getElementById(button.dataset.copy);
      var area = document.createElement("textarea");
      area.value = source.textContent;
      document.body.appendChild(area);
      area.select();
      var done = false;
      try { done = document.execCommand("copy"); } catch (error) { done = false; }
      area.remove();
      button.focus();
      button.textContent = done ? "Copied" : "Press Ctrl-C";
      window.setTimeout(function () { button.textContent = label; }, 1600);
    });
  });

  // Rows with details: a button in the first cell opens them. Without this script they are all open.
  document.querySelectorAll("tr[data-details]").forEach(function (row) {
    var details = document.getElementById(row.dataset.details);
    var head = row.querySelector("th");
    var button = document.createElement("button");
    button.type = "button";
    button.className = "more";
    button.setAttribute("aria-expanded", "false");
    button.setAttribute("aria-controls", details.id);
    button.setAttribute("aria-label", "Details of " + head.textContent.trim());
    head.insertBefore(button, head.firstChild);
    details.hidden = true;
    button.addEventListener("click", function () {
      details.hidden = !details.hidden;
      button.setAttribute("aria-expanded", String(!details.hidden));
    });
  });

  document.querySelectorAll("fieldset.filters").forEach(function (filters) {
    var rows = Array.from(document.getElementById(filters.dataset.for).querySelectorAll("tr[data-state]"));
    var boxes = Array.from(filters.querySelectorAll("[data-state-filter]"));
    var text = filters.querySelector("[data-text-filter]");
    function show() {
      var states = boxes.filter(function (box) { return box.checked; })
        .map(function (box) { return box.dataset.stateFilter; });
      var wanted = text.value.trim().toLowerCase();
      rows.forEach(function (row) {
        var states_match = states.indexOf(row.dataset.state) >= 0;
        row.hidden = !states_match || (wanted && row.textContent.toLowerCase().indexOf(wanted) < 0);
      });
    }
    if (!boxes.some(function (box) { return box.checked; })) {
      boxes.forEach(function (box) { box.checked = true; });
    }
    boxes.forEach(function (box) { box.closest("label").hidden = false; box.addEventListener("change", show); });
    text.hidden = false;
    text.addEventListener("input", show);
    show();
  });

  document.querySelectorAll("table[data-sortable]").forEach(function (table) {
    var body = table.tBodies[0];
    var heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach(function (head, column) {
      if (!head.textContent.trim() || head.querySelector("svg")) { return; }
      var button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.textContent = head.textContent;
      head.textContent = "";
      head.appendChild(button);
      button.addEventListener("click", function () {
        var ascending = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach(function (other) { other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
        function key(row) {
          var cell = row.cells[column];
          return cell.dataset.sort === undefined ? cell.textContent.trim() : Number(cell.dataset.sort);
        }
        Array.from(body.rows).sort(function (one, other) {
          var a = key(one), b = key(other);
          var order = typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : (typeof a === "number" ? -1 : 1);
          return ascending ? order : -order;
        }).forEach(function (row) { body.appendChild(row); });
      });
    });
  });

  var save = document.getElementById("save-data");
  save.hidden = false;
  save.addEventListener("click", function () {
    var text = document.getElementById("pipetune-data").textContent;
    var link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = "pipetune-report.json";
    link.click();
    URL.revokeObjectURL(link.href);
  });
}());
