package measure

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Table is shown in a terminal or in Markdown.
type Table struct {
	Title string
	Head  []string
	Rows  [][]string
}

// WriteTables writes tables for a terminal.
func WriteTables(w io.Writer, tables ...Table) error {
	for i, t := range tables {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s\n\n", t.Title)
		columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, row := range append([][]string{t.Head}, t.Rows...) {
			fmt.Fprintln(columns, strings.Join(row, "\t"))
		}
		if err := columns.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// Markdown formats the table without its title.
func (t Table) Markdown() string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.Head)
	b.WriteString("|" + strings.Repeat("---|", len(t.Head)) + "\n")
	for _, row := range t.Rows {
		line(row)
	}
	return b.String()
}
