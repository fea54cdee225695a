package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// set is a group of texts that are asked together.
type set struct {
	name  string
	verb  string // parse or bind
	texts map[string]string
}

// collect returns the texts of the repository: the statements of both kinds of queues, which are bound in a model of their tables; the SQL of
// the documents, and that of programs, which are parsed.
func collect(root string) ([]set, error) {
	plain, err := statements(root, false)
	if err != nil {
		return nil, err
	}
	ordered, err := statements(root, true)
	if err != nil {
		return nil, err
	}
	documents, err := documented(root)
	if err != nil {
		return nil, err
	}
	programs, err := programmed(root)
	if err != nil {
		return nil, err
	}
	return []set{
		{"statements of a plain queue", "bind", plain},
		{"statements of an ordered queue", "bind", ordered},
		{"the documents", "parse", documents},
		{"doctor, the articles, the first hour", "parse", programs},
	}, nil
}

var (
	defines   = regexp.MustCompile(`^(migration|view|procedures|drop)-`)
	plainOnly = regexp.MustCompile(`^(claim|claim-past-readers|rescan|rescue|next-due|due-or-locked|watch)$`)
)

// statements returns the golden texts of a kind of queue. Those of the folder ordered replace others of the same name.
func statements(root string, ordered bool) (map[string]string, error) {
	folder := filepath.Join(root, "sqlbatch", "sqlserver", "testdata")
	folders := []string{folder}
	if ordered {
		folders = append(folders, filepath.Join(folder, "ordered"))
	}
	texts := map[string]string{}
	for i, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.sql"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".sql")
			if ordered && plainOnly.MatchString(name) || strings.HasPrefix(name, "migration-begin") || strings.HasPrefix(name, "migration-commit") {
				continue
			}
			if defines.MatchString(name) { // its number differs between the kinds, and what is equal in both is in the first folder
				name = fmt.Sprintf("ddl-%d-%s", i, name)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			texts[name] = string(text)
		}
	}
	if len(texts) < 50 {
		return nil, fmt.Errorf("%s has %d texts", folder, len(texts))
	}
	return texts, nil
}

var block = regexp.MustCompile("(?s)```sql([^\n]*)\n(.*?)```")

// documented returns the SQL of the documents that is SQL Server's, and whole.
func documented(root string) (map[string]string, error) {
	texts := map[string]string{}
	rights, err := os.ReadFile(filepath.Join(root, "docs", "rights", "sqlserver.sql"))
	if err != nil {
		return nil, err
	}
	texts["rights"] = string(rights)
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		document, err := os.ReadFile(path)
		for i, m := range block.FindAllStringSubmatch(string(document), -1) {
			tagged := strings.HasPrefix(strings.TrimSpace(m[1]), "sqlserver")
			untagged := strings.TrimSpace(m[1]) == "" && strings.Contains(filepath.Base(path), "sqlserver")
			if (tagged || untagged) && !strings.Contains(m[2], "…") {
				texts[fmt.Sprintf("%s-%d", strings.TrimSuffix(filepath.Base(path), ".md"), i)] = m[2]
			}
		}
		return err
	})
	if len(texts) < 5 {
		err = errors.Join(err, fmt.Errorf("the documents have %d texts", len(texts)))
	}
	return texts, err
}

// asks is how a text of SQL begins.
var asks = regexp.MustCompile(`^\s*(SELECT|INSERT INTO|UPDATE|DELETE|WITH|CREATE|ALTER|DROP|EXEC|DECLARE|IF|SET|USE|BEGIN|MERGE) [\s\S]*[\s\[(]`)

// no has what is no SQL: names of rights, remedies, and the beginning of a text. Two options are newer than the parsers.
var no = regexp.MustCompile(`^\w+ ANY |^ALTER DATABASE CURRENT|^DECLARE x|ACCELERATED_DATABASE_RECOVERY|OPTIMIZED_LOCKING`)

// programmed returns the SQL of programs that ask SQL Server, outside of sqlbatch. A value that is put together is x there.
func programmed(root string) (map[string]string, error) {
	texts := map[string]string{}
	for _, pattern := range []string{"cmd/chanq/internal/doctor/sqlserver.go", "bench/strategy_article_*.go", "prove/firsthour/*.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			return nil, errors.Join(err, fmt.Errorf("no file is %s", pattern))
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			n := 0
			ast.Inspect(parsed, func(node ast.Node) bool {
				e, ok := node.(ast.Expr)
				if !ok {
					return true
				}
				text, ok := textOf(e)
				if !ok {
					return true
				}
				if asks.MatchString(text) && !no.MatchString(text) && !postgres.MatchString(text) {
					texts[fmt.Sprintf("%s-%02d", strings.TrimSuffix(filepath.Base(file), ".go"), n)] = strings.ReplaceAll(text, "{}", "x")
					n++
				}
				return false
			})
		}
	}
	return texts, nil
}

// postgres tells the articles' statements on PostgreSQL apart.
var postgres = regexp.MustCompile(`\$1|RETURNING|SKIP LOCKED|pg_|bytea|IDENTITY PRIMARY|LIMIT `)

// textOf returns the text of a literal, or of a sum of literals and other values.
func textOf(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		left, one := textOf(e.X)
		right, other := textOf(e.Y)
		if e.Op != token.ADD || !one && !other {
			return "", false
		}
		if !one {
			left = "x"
		}
		if !other {
			right = "x"
		}
		return left + right, true
	}
	return "", false
}

// plant is an error that is put into a text of the first set, which must be found.
type plant struct{ what, text, was, is string }

var planted = []plant{
	{"a parenthesis is missing", "claim", "SELECT TOP (@left) u.id", "SELECT TOP (@left u.id"},
	{"a column does not exist", "claim", "u.leased_by IS NULL", "u.leased_bi IS NULL"},
	{"a parameter is not declared", "ack", "-- @a varbinary(8000)\n", ""},
}

// plant returns the first set with the error.
func (p plant) plant(sets []set) (set, error) {
	s := set{name: p.what, verb: sets[0].verb, texts: map[string]string{}}
	for name, text := range sets[0].texts {
		if name == p.text || strings.HasPrefix(name, "ddl-") {
			s.texts[name] = text
		}
	}
	was := s.texts[p.text]
	s.texts[p.text] = strings.ReplaceAll(was, p.was, p.is)
	if s.texts[p.text] == was {
		return s, fmt.Errorf("the text %s has no %q to spoil", p.text, p.was)
	}
	return s, nil
}
