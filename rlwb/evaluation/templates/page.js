// Opens all details while the page is printed, so that nothing is missing on paper.
addEventListener("beforeprint", () => {
  for (const each of document.querySelectorAll("details:not([open])")) {
    each.open = true;
    addEventListener("afterprint", () => (each.open = false), { once: true });
  }
});
