package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// size returns the columns and lines of the terminal, or 0 if unknown or without a terminal.
func (a *app) size() (width, height int) {
	f, ok := a.terminal.(*os.File)
	if !ok {
		return 0, 0
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}

// dispensable are the columns of top that a narrow terminal omits, in this order.
var dispensable = []string{"LAST HOUR", "SCHEDULED", "CONSUMERS", "WAIT", "HANDLER", "IN/S", "OUT/S", "LEASED"}

// shortName is the width to which the first column is cut before columns are omitted.
const shortName = 24

// fit limits rows to a width in characters, by cutting names and omitting columns. It omits rows
// beyond lines, and the last row says so. 0 means no limit.
func fit(rows [][]string, width, lines int) [][]string {
	if width > 0 && widthOf(rows) > width {
		rows = firstAtMost(rows, shortName)
	}
	for _, name := range dispensable {
		if width == 0 || widthOf(rows) <= width {
			break
		}
		if at := slices.Index(rows[0], name); at >= 0 {
			for i := range rows {
				rows[i] = slices.Delete(slices.Clone(rows[i]), at, at+1)
			}
		}
	}
	if over := widthOf(rows) - width; width > 0 && over > 0 {
		rows = firstAtMost(rows, max(4, shortName-over))
	}
	if left := len(rows) - lines; lines > 1 && left > 0 {
		rows = append(slices.Clone(rows[:lines-1]), []string{fmt.Sprintf("… and %d more", left+1)})
	}
	return rows
}

// firstAtMost cuts the first column.
func firstAtMost(rows [][]string, n int) [][]string {
	cut := make([][]string, len(rows))
	for i, row := range rows {
		cut[i] = slices.Clone(row)
		cut[i][0] = brief(row[0], n)
	}
	return cut
}

// widthOf returns the width of rows in app.table, with two blanks between columns.
func widthOf(rows [][]string) (width int) {
	for at := range rows[0] {
		widest := 0
		for _, row := range rows {
			widest = max(widest, utf8.RuneCountInString(row[at]))
		}
		width += widest
	}
	last := 0 // trailing blanks do not count
	for _, row := range rows {
		last = max(last, utf8.RuneCountInString(strings.Join(row[len(row)-1:], "")))
	}
	blanks := 2 * (len(rows[0]) - 1)
	if last == 0 {
		blanks -= 2
	}
	return width + blanks
}
