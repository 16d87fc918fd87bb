// The theme leaves these gaps in the accessibility of a page.
const complete = () => {
  // A box that scrolls: the keyboard can only scroll what can have the focus.
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .md-search-result pre > code")) box.tabIndex = 0
  // The buttons of a code block are not a landmark: a page has many of them, all without a name.
  for (const buttons of document.querySelectorAll(".md-code__nav")) buttons.setAttribute("role", "none")
}
complete()
new MutationObserver(complete).observe(document.body, { childList: true, subtree: true })
