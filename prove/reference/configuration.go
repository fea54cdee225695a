package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/sqlbatch"
)

// structs are the types of the page, in its order, with a sentence about each.
var structs = []struct{ dir, name, about string }{
	{".", "Config", "How your program uses a queue: you pass it to `chanq.Open` and `chanq.Migrate`."},
	{".", "Spec", "What the database stores for all programs: a part of `Config`. You change it with `chanq configure`."},
	{".", "ProducerConfig", "You pass it to `Queue.Producer`."},
	{".", "ConsumerConfig", "You pass it to `Queue.Consume`."},
	{".", "Message", "What you send."},
	{"mssqlnotify", "Config", "The notifier of SQL Server."},
}

// configuration returns the page of configurations.
func configuration() (string, error) {
	var b strings.Builder
	b.WriteString(`# Configuration

<!-- go run ./prove/reference writes this page. Change the comments of the fields instead. -->

The zero value of each field is its default, and suits most programs. For example:

` + "```go\n" + `consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{Prefetch: 10})
` + "```" + `

Each field has its default and its range in parentheses. A value outside the range is an error. You find all details in the
[documentation of the package](https://pkg.go.dev/github.com/chanq/chanq). chanq reads no environment variables.
`)
	for _, s := range structs {
		fields, err := fieldsOf(s.dir, s.name)
		if err != nil {
			return "", err
		}
		name := s.name
		if s.dir != "." {
			name = s.dir + "." + name
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", name, wrapped(s.about, ""))
		for _, f := range fields {
			b.WriteString(wrapped(f.item(), "  "))
		}
	}
	fmt.Fprintf(&b, `
## Fixed limits

| what | limit |
|---|---|
| characters of a queue's name | %s |
| databases of one queue | %s |
| bytes kept of an error | %s |
| blocked keys of a consumer, behind which it reads no further | %s |
| messages of a page of `+"`List`"+` | %s |
| counts of `+"`Stats`"+`, and messages of a dry run | %s |
| counts of `+"`Slots`"+`, per slot | %s |
| settles that wait | 2 × `+"`Prefetch`"+`, at least 4,096 |
`, grouped(sqlbatch.MaxName), grouped(sqlbatch.MaxShards), grouped(sqlbatch.MaxError), grouped(claim.BlockedMost), grouped(chanqadmin.MostListed), grouped(chanqadmin.StatsLimit), grouped(chanqadmin.SlotStatsLimit))
	return b.String(), nil
}

// field is a field of a struct, with the parts of its comment.
type field struct{ name, about, standard, bounds string }

// item returns the field as an item of a list: its name, its default and range, and what it is.
func (f field) item() string {
	var limits []string
	for _, limit := range []string{f.standard, f.bounds} {
		if limit != "" {
			limits = append(limits, coded(limit))
		}
	}
	text := fmt.Sprintf("- **`%s`**", f.name)
	if limits != nil {
		text += " (" + strings.Join(limits, "; ") + ")"
	}
	return text + ": " + coded(f.about)
}

var (
	standard = regexp.MustCompile(`\bDefault: (.*?)\.(?:\s|$)`)
	bounds   = regexp.MustCompile(`\bRange: (.*?)\.(?:\s|$)`)
	sentence = regexp.MustCompile(`^(.*?\.)(?:\s|$)`)
	// identifier is what a page shows as code: *sql.DB, Config.Spec, ErrSpec, BatchRows, DedupKey.
	identifier = regexp.MustCompile(`\*sql\.DB|\b[A-Za-z]+\.[A-Z]\w*(?:\.\w+)*|\b[A-Z][a-z]+[A-Z]\w*|\bchanq migrate\b`)
)

// coded returns a text with its identifiers as code.
func coded(text string) string {
	return identifier.ReplaceAllStringFunc(text, func(name string) string {
		if name == "PostgreSQL" || strings.HasSuffix(name, "iB") {
			return name
		}
		return "`" + name + "`"
	})
}

// fieldsOf returns the documented fields of a struct.
func fieldsOf(dir, name string) ([]field, error) {
	decl, err := find(dir, name)
	if err != nil {
		return nil, err
	}
	var list []field
	for _, f := range decl.Type.(*ast.StructType).Fields.List {
		doc := strings.TrimSpace(f.Doc.Text())
		if doc == "" || len(f.Names) == 0 {
			continue
		}
		var names []string
		for _, n := range f.Names {
			names = append(names, n.Name)
		}
		one := field{name: strings.Join(names, "`, `")}
		for i, paragraph := range strings.Split(doc, "\n\n") {
			paragraph = strings.Join(strings.Fields(paragraph), " ")
			if i == 0 {
				one.about = without(sentence.FindString(paragraph), strings.Join(names, " and "))
			}
			if m := standard.FindStringSubmatch(paragraph); m != nil {
				one.standard = m[1]
			}
			if m := bounds.FindStringSubmatch(paragraph); m != nil {
				one.bounds = m[1]
			}
		}
		if one.about == "" {
			return nil, fmt.Errorf("the comment of %s.%s has no sentence", name, names[0])
		}
		list = append(list, one)
	}
	return list, nil
}

// without returns a sentence without the name that it begins with, and without a following "is" or "are".
func without(text, name string) string {
	rest, found := strings.CutPrefix(strings.TrimSpace(text), name+" ")
	if !found || strings.HasPrefix(rest, "of ") || strings.HasPrefix(rest, "that ") {
		return strings.TrimSpace(text)
	}
	rest = strings.TrimPrefix(strings.TrimPrefix(rest, "is "), "are ")
	return capital(rest)
}

// find returns the declaration of a type in a folder.
func find(dir, name string) (found *ast.TypeSpec, err error) {
	err = eachDecl(dir, func(d ast.Decl) {
		general, is := d.(*ast.GenDecl)
		if !is {
			return
		}
		for _, s := range general.Specs {
			if s, is := s.(*ast.TypeSpec); is && s.Name.Name == name {
				found = s
			}
		}
	})
	if err == nil && found == nil {
		err = fmt.Errorf("%s has no type %s", dir, name)
	}
	return found, err
}

// eachDecl calls f with each declaration of the product files of a folder.
func eachDecl(dir string, f func(ast.Decl)) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			f(d)
		}
	}
	return nil
}

// capital returns a sentence that begins with a capital letter, or with the name of a package.
func capital(s string) string {
	if first, _, _ := strings.Cut(s, " "); strings.Contains(first, ".") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// grouped formats a number as 10,000.
func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return grouped(n/1000) + fmt.Sprintf(",%03d", n%1000)
}
