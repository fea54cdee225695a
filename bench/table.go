package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// table is shown in a terminal or in Markdown.
type table struct {
	title string
	head  []string
	rows  [][]string
}

func writeTables(w io.Writer, tables []table) error {
	for i, t := range tables {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s\n\n", t.title)
		columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, row := range append([][]string{t.head}, t.rows...) {
			fmt.Fprintln(columns, strings.Join(row, "\t"))
		}
		if err := columns.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// markdown is the table without its title.
func (t table) markdown() string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.head)
	b.WriteString("|" + strings.Repeat("---|", len(t.head)) + "\n")
	for _, row := range t.rows {
		line(row)
	}
	return b.String()
}
