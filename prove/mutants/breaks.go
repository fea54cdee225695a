package main

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// deliberate is one break: an edit of one file, and the test that must fail with it.
type deliberate struct {
	name string // unique
	area string // the guarantee, G01 to G13, or the package
	says string // what is broken
	dir  string // of the package of the test, from the root of the repository
	test string // the full name of the test
	long bool   // the test is of the long tier
	file string // that is edited, from the root of the repository
	old  string // whole lines, which occur once in the file
	new  string
}

//go:embed breaks/*.txt
var listed embed.FS

// kept returns the breaks of breaks/*.txt, in the order of the files.
func kept() ([]deliberate, error) {
	var all []deliberate
	names := map[string]bool{}
	files, err := fs.Glob(listed, "breaks/*.txt")
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		text, err := listed.ReadFile(name)
		if err != nil {
			return nil, err
		}
		some, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, d := range some {
			if names[d.name] {
				return nil, fmt.Errorf("%s: the name %q is used twice", name, d.name)
			}
			names[d.name] = true
		}
		all = append(all, some...)
	}
	return all, nil
}

// parse reads a list of breaks. A blank line ends a break, and a line that begins with # is a comment. A break begins
// with its fields and ends with its edit, as in a patch: lines that begin with a space stay, with - are removed, and
// with + are added.
func parse(text string) (all []deliberate, err error) {
	var d deliberate
	begun := false
	end := func(line int) error {
		if !begun {
			return nil
		}
		if d.name == "" || d.area == "" || d.says == "" || d.test == "" || d.file == "" || d.old == "" || d.old == d.new {
			return fmt.Errorf("the break that ends at line %d needs a name, an area, says, a test, a file and an edit", line)
		}
		all = append(all, d)
		d, begun = deliberate{}, false
		return nil
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		switch {
		case line == "":
			if err := end(i + 1); err != nil {
				return nil, err
			}
			continue
		case strings.HasPrefix(line, "#"):
			continue
		}
		begun = true
		switch line[0] {
		case ' ':
			d.old, d.new = d.old+line[1:]+"\n", d.new+line[1:]+"\n"
			continue
		case '-':
			d.old += line[1:] + "\n"
			continue
		case '+':
			d.new += line[1:] + "\n"
			continue
		}
		field, value, _ := strings.Cut(line, ": ")
		switch field {
		case "name":
			d.name = value
		case "area":
			d.area = value
		case "says":
			d.says = value
		case "file":
			d.file = value
		case "test":
			d.dir, d.test, _ = strings.Cut(value, " ")
		case "tier":
			if d.long = value == "long"; !d.long {
				return nil, fmt.Errorf("line %d: the tier is %q: want long, or no such line", i+1, value)
			}
		default:
			return nil, fmt.Errorf("line %d: no field is called %q", i+1, field)
		}
	}
	return all, end(len(lines))
}

// apply returns the text of a file with the break in it, or a verdict.
func (d deliberate) apply(text string) (broken string, v verdict) {
	// Only whole lines match, not a line of the file that ends like the first old one.
	switch text = "\n" + text; strings.Count(text, "\n"+d.old) {
	case 0:
		return "", textGone
	case 1:
		return strings.Replace(text, "\n"+d.old, "\n"+d.new, 1)[1:], ""
	}
	return "", textTwice
}

// pattern returns the argument of go test -run for tests of full names.
func pattern(tests ...string) string {
	whole := make([]string, len(tests))
	for i, test := range tests {
		parts := strings.Split(test, "/")
		for j := range parts {
			parts[j] = "^" + regexp.QuoteMeta(parts[j]) + "$"
		}
		whole[i] = strings.Join(parts, "/")
	}
	return strings.Join(whole, "|")
}

// root returns the root of the repository, above the working directory.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if info, err := os.Stat(filepath.Join(dir, "prove", "mutants", "breaks")); err == nil && info.IsDir() {
			return dir, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", fmt.Errorf("mutants runs inside the repository")
		}
		dir = above
	}
}
