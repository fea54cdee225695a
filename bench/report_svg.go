package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// Plots have two simple forms, bars and lines, written as SVG. docs/internals/decisions.md explains why no
// library draws them.

// svg collects elements. Coordinates are rounded so that the same figures produce the same file.
type svg struct {
	b             strings.Builder
	width, height float64
}

const svgText, svgGrid = "#222", "#ddd"

// palette is Okabe and Ito's, whose colours colour-blind readers can distinguish.
var palette = []string{"#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#999999", "#000000"}

func colour(i int) string { return palette[i%len(palette)] }

func (s *svg) text(x, y float64, anchor, text string) {
	s.b.WriteString(fmt.Sprintf(`<text x="%.1f" y="%.1f" text-anchor="%s">`, x, y, anchor))
	_ = xml.EscapeText(&s.b, []byte(text)) // a Builder does not fail
	s.b.WriteString("</text>\n")
}

func (s *svg) rect(x, y, w, h float64, fill, title string) {
	s.b.WriteString(fmt.Sprintf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>`, x, y, w, h, fill))
	_ = xml.EscapeText(&s.b, []byte(title))
	s.b.WriteString("</title></rect>\n")
}

func (s *svg) line(x1, y1, x2, y2 float64, stroke string) {
	s.b.WriteString(fmt.Sprintf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, stroke))
}

func (s *svg) path(points [][2]float64, stroke string) {
	var d strings.Builder
	for i, p := range points {
		d.WriteString(fmt.Sprintf("%c%.1f %.1f", "ML"[min(i, 1)], p[0], p[1]))
		s.b.WriteString(fmt.Sprintf(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", p[0], p[1], stroke))
	}
	s.b.WriteString(fmt.Sprintf(`<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", d.String(), stroke))
}

// legend draws names with their colours in one or more rows from y on, and returns the y position
// below them.
func (s *svg) legend(x, y float64, names []string) float64 {
	at := x
	for i, name := range names {
		wide := 24 + 6.6*float64(len(name))
		if at+wide > s.width && at > x {
			at, y = x, y+16
		}
		s.rect(at, y-9, 10, 10, colour(i), name)
		s.text(at+14, y, "start", name)
		at += wide
	}
	return y + 16
}

func (s *svg) document(title string) []byte {
	var out strings.Builder
	out.WriteString(fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="12" fill="%s">`+"\n<title>",
		s.width, s.height, svgText))
	_ = xml.EscapeText(&out, []byte(title))
	out.WriteString(fmt.Sprintf("</title>\n"+`<rect width="%.0f" height="%.0f" fill="white"/>`+"\n", s.width, s.height))
	out.WriteString(s.b.String())
	out.WriteString("</svg>\n")
	return []byte(out.String())
}

// scale maps values to a length: linearly from 0, or, if they span more than linearSpan,
// logarithmically from a power of ten.
type scale struct {
	low, high, length float64
	log               bool
}

const linearSpan = 30

func newScale(values []float64, length float64) scale {
	low, high := math.Inf(1), 0.0
	for _, v := range values {
		if v > 0 {
			low, high = min(low, v), max(high, v)
		}
	}
	switch {
	case high == 0:
		return scale{high: 1, length: length}
	case high/low > linearSpan:
		return scale{math.Pow(10, math.Floor(math.Log10(low))), high * 1.15, length, true}
	default:
		return scale{0, high * 1.08, length, false}
	}
}

func (s scale) at(v float64) float64 {
	if s.log {
		return s.length * math.Log10(max(v, s.low)/s.low) / math.Log10(s.high/s.low)
	}
	return s.length * v / s.high
}

// ticks returns round values.
func (s scale) ticks() (values []float64) {
	if s.log {
		for v := s.low; v <= s.high; v *= 10 {
			values = append(values, v)
		}
		return values
	}
	step := math.Pow(10, math.Floor(math.Log10(s.high/2)))
	for s.high/step > 6 {
		step *= 2
	}
	for v := 0.0; v <= s.high; v += step {
		values = append(values, v)
	}
	return values
}

// label formats a value on an axis.
func label(v float64) string {
	switch {
	case v >= 1e6:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", v/1e6), ".0") + " M"
	case v >= 1e4:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", v/1e3), ".0") + " k"
	case v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2g", v)
}
