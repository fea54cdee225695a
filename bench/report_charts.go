package main

import (
	"fmt"

	"github.com/chanq/chanq/bench/internal/measure"
)

// bars are rows of horizontal bars.
type bars struct {
	title, unit string
	names       []string // of the values of a row, by color
	rows        []barRow
	stacked     bool // the values of a row are drawn end to end
}

type barRow struct {
	label  string
	values []float64
}

func (c bars) draw() []byte {
	const right, thick, gap = 90, 11, 9
	left := 150.0
	for _, row := range c.rows {
		left = max(left, 12+6.8*float64(len(row.label)))
	}
	s := &svg{width: 760}
	s.text(10, 20, "start", c.title)
	top := s.legend(10, 40, c.names) + 6
	var values []float64
	for _, row := range c.rows {
		sum := 0.0
		for _, v := range row.values {
			values = append(values, v)
			sum += v
		}
		if c.stacked {
			values = append(values, sum)
		}
	}
	x := newScale(values, s.width-left-right)
	if c.stacked { // parts of a logarithm have no meaning
		x.log, x.low, x.high = false, 0, newHigh(values)
	}
	deep := gap + thick*float64(len(c.names))
	if c.stacked {
		deep = gap + thick
	}
	bottom := top + deep*float64(len(c.rows))
	for _, v := range x.ticks() {
		s.line(left+x.at(v), top, left+x.at(v), bottom, svgGrid)
		s.text(left+x.at(v), bottom+14, "middle", label(v))
	}
	s.text(left, bottom+30, "start", c.unit)
	for i, row := range c.rows {
		y := top + deep*float64(i) + gap/2
		s.text(left-6, y+deep/2, "end", row.label)
		from := 0.0
		for j, v := range row.values {
			if v <= 0 {
				continue
			}
			name := fmt.Sprintf("%s, %s: %s %s", row.label, c.names[j], measure.Short(v), c.unit)
			if c.stacked {
				s.rect(left+x.at(from), y, x.at(from+v)-x.at(from), thick, colour(j), name)
				from += v
				continue
			}
			at := y + thick*float64(j)
			s.rect(left, at, max(x.at(v), 1), thick-1, colour(j), name)
			s.text(left+x.at(v)+4, at+thick-2, "start", label3(v))
		}
		if c.stacked && from > 0 {
			s.text(left+x.at(from)+4, y+thick-1, "start", label3(from))
		}
	}
	s.height = bottom + 40
	return s.document(c.title)
}

func newHigh(values []float64) (high float64) {
	for _, v := range values {
		high = max(high, v)
	}
	return max(high, 1e-9) * 1.05
}

// label3 formats a value with three significant figures.
func label3(v float64) string {
	if v >= 1e6 {
		return fmt.Sprintf("%.3g M", v/1e6)
	}
	if v >= 1e4 {
		return fmt.Sprintf("%.3g k", v/1e3)
	}
	return measure.Short(v)
}

// lines are series over sizes, which are drawn at equal distances: a level line does not grow,
// whatever the sizes.
type lines struct {
	title, x, y string
	sizes       []int
	names       []string
	series      [][]float64 // by name and size; 0: not measured
}

func (c lines) draw() []byte {
	const left, right, tall = 70, 30, 220
	s := &svg{width: 760}
	s.text(10, 20, "start", c.title)
	top := s.legend(10, 40, c.names) + 6
	var values []float64
	for _, one := range c.series {
		values = append(values, one...)
	}
	y := newScale(values, tall)
	bottom := top + tall
	for _, v := range y.ticks() {
		s.line(left, bottom-y.at(v), s.width-right, bottom-y.at(v), svgGrid)
		s.text(left-6, bottom-y.at(v)+4, "end", label(v))
	}
	s.text(left, bottom+32, "start", c.y+" over "+c.x)
	place := func(i int) float64 {
		return left + (s.width-left-right)*(float64(i)+0.5)/float64(len(c.sizes))
	}
	for i, size := range c.sizes {
		s.text(place(i), bottom+16, "middle", label(float64(size)))
	}
	for i, one := range c.series {
		var points [][2]float64
		for j, v := range one {
			if v > 0 {
				points = append(points, [2]float64{place(j), bottom - y.at(v)})
			}
		}
		s.path(points, colour(i))
	}
	s.height = bottom + 44
	return s.document(c.title)
}
