// Command reference writes docs/reference from the code: the configuration from the comments of its fields, the commands from their help,
// the errors from their comments, and the metrics from their descriptions.
//
//	go run ./prove/reference
//
// A test of this package fails while a page differs from the code.
package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// folder has the pages, from the root of the repository.
const folder = "docs/reference"

func main() {
	log.SetFlags(0)
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/chanq/chanq").Output()
	if err != nil {
		log.Fatal("reference: start it in the repository: ", err)
	}
	if err := os.Chdir(strings.TrimSpace(string(root))); err != nil {
		log.Fatal("reference: ", err)
	}
	all, err := pages()
	if err != nil {
		log.Fatal("reference: ", err)
	}
	for name, text := range all {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			log.Fatal("reference: ", err)
		}
	}
}

// pages returns the pages by the names of their files. It runs in the root of the repository.
func pages() (map[string]string, error) {
	all := map[string]string{}
	for name, page := range map[string]func() (string, error){
		"configuration.md": configuration, "cli.md": commands, "errors.md": errorsPage, "metrics.md": metrics,
	} {
		text, err := page()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all[name] = text
	}
	return all, nil
}

// wrapped breaks a paragraph into lines of at most 110 characters. The lines after the first begin with indent.
func wrapped(paragraph, indent string) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(paragraph) {
		switch {
		case column == 0:
		case column+1+len(word) > 110:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String() + "\n"
}
