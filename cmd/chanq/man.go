package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand is for packagers.
func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man FOLDER",
		Short: "Write the manual pages of these commands",
		Long: `Writes a manual page for each command, chanq.1, chanq-stats.1 and so on, into a folder,
which it makes. man -l FOLDER/chanq.1 shows one; packages put them into share/man/man1.`,
		Example: "  chanq man /usr/local/share/man/man1",
		Args:    exactly(1, "a folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // so that the pages do not depend on the date
			if err := doc.GenManTree(root, &doc.GenManHeader{Title: "CHANQ", Section: "1", Source: "chanq", Manual: "chanq"}, args[0]); err != nil {
				return err
			}
			pages, err := filepath.Glob(filepath.Join(args[0], "chanq*.1"))
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.json(map[string]any{"folder": args[0], "pages": len(pages)})
			}
			_, err = fmt.Fprintf(a.out, "%s in %s\n", count(len(pages), "page"), visible(args[0]))
			return err
		},
	}
}
