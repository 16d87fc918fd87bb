// A table that is wider than the page scrolls. The keyboard can only scroll what can have the focus.
document$.subscribe(() =>
  setTimeout(() => {
    for (const wrapper of document.querySelectorAll(".md-typeset__scrollwrap")) wrapper.tabIndex = 0
  }),
)
