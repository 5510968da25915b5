// The theme takes the focus off the button that opens a list or the search before it notes where
// the focus was: when that closes, and nothing else has the focus, it goes back to the button.
(() => {
  "use strict";
  const opened = {
    "pst-primary-sidebar-modal": ".primary-toggle",
    "pst-secondary-sidebar-modal": ".secondary-toggle",
    "pst-search-dialog": ".search-button",
  };
  for (const [id, buttons] of Object.entries(opened)) {
    // Later than the theme's own listener, which is added as the list opens and runs last.
    const box = document.getElementById(id);
    box?.addEventListener("close", () => setTimeout(() => {
      const active = document.activeElement;
      const button = [...document.querySelectorAll(buttons)].find((each) => each.checkVisibility());
      if (active === document.body || box.contains(active)) button?.focus({ preventScroll: true });
    }));
  }
})();
