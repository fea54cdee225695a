package browsertest

import (
	"os"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// axeVariable names the file axe.min.js of axe-core, with which the pages are also checked: .ci/run sets it.
const axeVariable = "CHANQ_TEST_AXE"

// accessible requires that axe finds no violation of WCAG 2.1, A and AA.
func (b *browser) accessible(where string) {
	b.t.Helper()
	file := os.Getenv(axeVariable)
	if file == "" {
		return
	}
	axe, err := os.ReadFile(file)
	require.NoError(b.t, err)
	require.True(b.t, evaluate[bool](b, string(axe)+`;
delete window.violations;
axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"] }).then(
  (r) => { window.violations = r.violations.map((v) => v.id + ": " + v.nodes.map((n) => n.html).join(" ")); },
  (e) => { window.violations = [String(e)]; });
true`))
	_, err = chromedp.Run(b.ctx, chromedp.Poll[bool](`window.violations !== undefined`))
	require.NoError(b.t, err)
	require.Empty(b.t, evaluate[[]string](b, `window.violations`), where)
}

// flaws is a function that checks that a page is readable: all text is within the window, or in a scrollable element;
// no two texts overlap; no short word is broken by letter; a card of a queue is at most 120 px high; the tab of the page is in view; each has the contrast to its background that WCAG 2 requires (4.5 to 1, large text 3 to 1); and
// the background is dark in a dark window, and light in a light one. It returns the faults.
const flaws = `(dark) => {
  const wrong = [];
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => { // whatever way it is written in
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const luminance = (c) => {
    const [r, g, b] = c.slice(0, 3).map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    const layers = [];
    for (; e; e = e.parentElement) {
      const c = rgba(getComputedStyle(e).backgroundColor);
      if (c[3] > 0) layers.push(c);
      if (c[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const paper = luminance(behind(document.body));
  if (dark ? paper > 0.05 : paper < 0.8) wrong.push("the paper's luminance is " + paper.toFixed(3));
  if (document.documentElement.scrollWidth > innerWidth) wrong.push("it is " + document.documentElement.scrollWidth + " wide in a window of " + innerWidth);
  const scrolls = (e) => {
    for (; e; e = e.parentElement) if (e !== document.documentElement && e !== document.body && ["auto", "scroll", "hidden"].includes(getComputedStyle(e).overflowX)) return true;
    return false;
  };
  const boxes = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = texts.nextNode());) {
    const e = node.parentElement, text = node.textContent.trim();
    if (!text || ["SCRIPT", "STYLE", "TEXTAREA"].includes(e.tagName) || !e.checkVisibility({ visibilityProperty: true }) || e.closest(".skip, details:not([open]) > :not(summary)")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const rects = [...range.getClientRects()].filter((r) => r.width > 1 && r.height > 1);
    if (!e.closest("pre, code, .id")) for (const word of node.textContent.matchAll(/[^\s\u2013-]+/g)) {
      if (word[0].length > 16) continue;
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].filter((r) => r.width > 1).map((r) => Math.round(r.top)));
      if (lines.size > 1) wrong.push("the word " + word[0] + " is broken");
    }
    const style = getComputedStyle(e), size = parseFloat(style.fontSize);
    const ground = behind(e), ink = over(rgba(style.color), ground);
    const [a, b] = [luminance(ink), luminance(ground)].sort((x, y) => y - x);
    const least = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    if (rects.length && (a + 0.05) / (b + 0.05) < least) wrong.push(JSON.stringify(text.slice(0, 40)) + " has a contrast of " + ((a + 0.05) / (b + 0.05)).toFixed(2));
    for (const r of rects) {
      if ((r.left < -1 || r.right > innerWidth + 1) && !scrolls(e)) wrong.push(JSON.stringify(text.slice(0, 40)) + " is outside of the window");
      if (!scrolls(e)) boxes.push({ text: text.slice(0, 40), r });
    }
  }
  const tab = document.querySelector(".tabs [aria-current]")?.getBoundingClientRect();
  if (tab && (tab.left < 0 || tab.right > innerWidth)) wrong.push("the tab of the page is not in view");
  if (innerWidth < 500) for (const row of document.querySelectorAll(".queues tbody tr")) if (row.offsetHeight > 120) wrong.push(row.innerText + " is " + row.offsetHeight + " px high");
  if (!boxes.length) wrong.push("no text is seen");
  boxes.sort((x, y) => x.r.top - y.r.top);
  for (let i = 0; i < boxes.length; i++) {
    for (let j = i + 1; j < boxes.length && boxes[j].r.top < boxes[i].r.bottom; j++) {
      const x = boxes[i].r, y = boxes[j].r;
      const w = Math.min(x.right, y.right) - Math.max(x.left, y.left), h = Math.min(x.bottom, y.bottom) - Math.max(x.top, y.top);
      if (w > 2 && h > 4) wrong.push(JSON.stringify(boxes[i].text) + " and " + JSON.stringify(boxes[j].text) + " are in one place");
    }
  }
  return [...new Set(wrong)];
}`

// reads requires that a page is readable and contains the given texts.
func (b *browser) reads(where string, dark bool, says ...string) {
	b.t.Helper()
	scheme := "false"
	if dark {
		scheme = "true"
	}
	require.Empty(b.t, evaluate[[]string](b, "("+flaws+")("+scheme+")"), where)
	b.accessible(where)
	seen := evaluate[string](b, `document.body.innerText`)
	for _, text := range says {
		require.Contains(b.t, seen, text, where)
	}
}
