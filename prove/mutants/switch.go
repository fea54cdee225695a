package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// All breaks are compiled into one program, since compiling would otherwise take most of the time. An environment
// variable activates one of them. A function with a break begins with a jump to a broken copy of itself. A constant
// with a break becomes a variable, as do the constants of the package that depend on it.

// variable names the active break.
const variable = "CHANQ_BROKEN"

// switchText is a file that is added to each package with breaks.
const switchText = `package %s

import "os"

var broken_ = os.Getenv("` + variable + `")

func choose_[T any](usual T, breaks []string, broken ...T) T {
	for i, name := range breaks {
		if name == broken_ {
			return broken[i]
		}
	}
	return usual
}
`

// source is a parsed file.
type source struct {
	text string
	set  *token.FileSet
	file *ast.File
}

func parseSource(text string) (*source, error) {
	s := &source{text: text, set: token.NewFileSet()}
	var err error
	s.file, err = parser.ParseFile(s.set, "", text, parser.SkipObjectResolution)
	return s, err
}

func (s *source) offset(p token.Pos) int { return s.set.Position(p).Offset }

func (s *source) of(n ast.Node) string { return s.text[s.offset(n.Pos()):s.offset(n.End())] }

// splice is a text that replaces another.
type splice struct {
	from, to int
	text     string
}

// module is a copy of the source in which breaks can be activated.
type module struct {
	root    string
	texts   map[string]*source             // by path from the root
	splices map[string][]splice            // by path from the root
	chosen  map[string]map[string][]string // of folders: the breaks of a constant's names, as arguments of choose_
}

// overlay writes a program with all breaks into the folder temp, and returns the path of the file for go test -overlay.
// It returns an error for each break that cannot be applied, by name.
func overlay(root, temp string, all []deliberate) (string, map[string]failure, error) {
	m := &module{root: root, texts: map[string]*source{}, splices: map[string][]splice{}, chosen: map[string]map[string][]string{}}
	failures := map[string]failure{}
	for i, d := range all {
		if v, err := m.add(i, d); v != "" {
			failures[d.name] = failure{v, err.Error()}
		}
	}
	replace := map[string]string{}
	write := func(path, text string) error {
		to := filepath.Join(temp, fmt.Sprintf("%d.go", len(replace)))
		replace[filepath.Join(root, filepath.FromSlash(path))] = to
		return os.WriteFile(to, []byte(text), 0o600)
	}
	for dir, names := range m.chosen {
		if err := m.constants(dir, names); err != nil {
			return "", nil, err
		}
	}
	dirs := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(m.splices)) {
		s := m.texts[path]
		parts := m.splices[path]
		slices.SortStableFunc(parts, func(a, b splice) int { return a.from - b.from })
		var b strings.Builder
		at := 0
		for _, p := range parts {
			b.WriteString(s.text[at:p.from] + p.text)
			at = p.to
		}
		b.WriteString(s.text[at:])
		if err := write(path, b.String()); err != nil {
			return "", nil, err
		}
		if dir := filepath.ToSlash(filepath.Dir(path)); !dirs[dir] {
			dirs[dir] = true
			if err := write(dir+"/switch_of_breaks.go", fmt.Sprintf(switchText, s.file.Name.Name)); err != nil {
				return "", nil, err
			}
		}
	}
	encoded, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", nil, err
	}
	path := filepath.Join(temp, "overlay.json")
	return path, failures, os.WriteFile(path, encoded, 0o600)
}

// read parses a file, once.
func (m *module) read(path string) (*source, error) {
	if s := m.texts[path]; s != nil {
		return s, nil
	}
	text, err := os.ReadFile(filepath.Join(m.root, filepath.FromSlash(path)))
	if err != nil {
		return nil, err
	}
	m.texts[path], err = parseSource(string(text))
	return m.texts[path], err
}

// add adds break number i.
func (m *module) add(i int, d deliberate) (verdict, error) {
	usual, err := m.read(d.file)
	if err != nil {
		return textGone, err
	}
	text, v := d.apply(usual.text)
	if v != "" {
		return v, fmt.Errorf("%s", d.file)
	}
	broken, err := parseSource(text)
	if err != nil {
		return notCompiled, err
	}
	changed := -1
	for n := range usual.file.Decls {
		if n < len(broken.file.Decls) && usual.of(usual.file.Decls[n]) != broken.of(broken.file.Decls[n]) {
			if changed >= 0 {
				changed = -1
				break
			}
			changed = n
		}
	}
	if changed < 0 || len(usual.file.Decls) != len(broken.file.Decls) {
		return notCompiled, fmt.Errorf("the edit must change exactly one declaration")
	}
	switch was := usual.file.Decls[changed].(type) {
	case *ast.FuncDecl:
		if is, ok := broken.file.Decls[changed].(*ast.FuncDecl); ok {
			return m.function(i, d, usual, was, broken, is)
		}
	case *ast.GenDecl:
		if is, ok := broken.file.Decls[changed].(*ast.GenDecl); ok && was.Tok == token.CONST && len(was.Specs) == len(is.Specs) {
			m.choose(d, usual, was, broken, is)
			return "", nil
		}
	}
	return notCompiled, fmt.Errorf("the edit must change a function or a constant")
}

// function makes a broken copy of a function, and a jump to it.
func (m *module) function(i int, d deliberate, usual *source, was *ast.FuncDecl, broken *source, is *ast.FuncDecl) (verdict, error) {
	name := fmt.Sprintf("%s_broken%d", was.Name.Name, i)
	call := name
	if was.Recv != nil {
		field := was.Recv.List[0]
		receiver := "receiver_"
		if len(field.Names) > 0 {
			receiver = field.Names[0].Name
		} else if at := usual.offset(field.Type.Pos()); !slices.Contains(m.splices[d.file], splice{at, at, "receiver_ "}) {
			m.splices[d.file] = append(m.splices[d.file], splice{at, at, "receiver_ "})
		}
		call = receiver + "." + name
	} else if types := was.Type.TypeParams; types != nil {
		call += "[" + strings.Join(namesOf(types), ", ") + "]"
	}
	args := namesOf(was.Type.Params)
	if slices.Contains(args, "_") || len(args) < was.Type.Params.NumFields() {
		return notCompiled, fmt.Errorf("%s has a parameter without a name", was.Name.Name)
	}
	call += "(" + strings.Join(args, ", ")
	if n := len(was.Type.Params.List); n > 0 {
		if _, variadic := was.Type.Params.List[n-1].Type.(*ast.Ellipsis); variadic {
			call += "..."
		}
	}
	call += ")"
	if was.Type.Results == nil {
		call += "\n\t\treturn"
	} else {
		call = "return " + call
	}
	text := broken.of(is)
	at := broken.offset(is.Name.Pos()) - broken.offset(is.Pos())
	text = text[:at] + name + text[at+len(is.Name.Name):]
	body := usual.offset(was.Body.Lbrace) + 1
	m.splices[d.file] = append(m.splices[d.file],
		splice{body, body, fmt.Sprintf("\n\tif broken_ == %q {\n\t\t%s\n\t}\n", d.name, call)},
		splice{usual.offset(was.End()), usual.offset(was.End()), "\n\n" + text})
	return "", nil
}

func namesOf(fields *ast.FieldList) (names []string) {
	for _, field := range fields.List {
		for _, name := range field.Names {
			names = append(names, name.Name)
		}
	}
	return names
}

// choose notes the other values of constants.
func (m *module) choose(d deliberate, usual *source, was *ast.GenDecl, broken *source, is *ast.GenDecl) {
	dir := filepath.ToSlash(filepath.Dir(d.file))
	if m.chosen[dir] == nil {
		m.chosen[dir] = map[string][]string{}
	}
	for i := range was.Specs {
		a, b := was.Specs[i].(*ast.ValueSpec), is.Specs[i].(*ast.ValueSpec)
		for j := range a.Values {
			if usual.of(a.Values[j]) != broken.of(b.Values[j]) {
				name := a.Names[j].Name
				m.chosen[dir][name] = append(m.chosen[dir][name], d.name, broken.of(b.Values[j]))
			}
		}
	}
}

// constants turns the constants of a package that have breaks into variables, and also those that depend on them.
func (m *module) constants(dir string, chosen map[string][]string) error {
	paths, err := filepath.Glob(filepath.Join(m.root, filepath.FromSlash(dir), "*.go"))
	if err != nil {
		return err
	}
	variables := map[string]bool{}
	for name := range chosen {
		variables[name] = true
	}
	each := func(visit func(path string, s *source, decl *ast.GenDecl)) error {
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			path, err := filepath.Rel(m.root, path)
			if err != nil {
				return err
			}
			path = filepath.ToSlash(path)
			s, err := m.read(path)
			if err != nil {
				return err
			}
			for _, decl := range s.file.Decls {
				if gen, ok := decl.(*ast.GenDecl); ok && gen.Tok == token.CONST {
					visit(path, s, gen)
				}
			}
		}
		return nil
	}
	for before := 0; before < len(variables); {
		before = len(variables)
		err := each(func(_ string, _ *source, decl *ast.GenDecl) {
			for _, spec := range decl.Specs {
				spec := spec.(*ast.ValueSpec)
				for i, value := range spec.Values {
					ast.Inspect(value, func(n ast.Node) bool {
						if id, ok := n.(*ast.Ident); ok && variables[id.Name] {
							variables[spec.Names[i].Name] = true
						}
						return true
					})
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return each(func(path string, s *source, decl *ast.GenDecl) {
		if !slices.ContainsFunc(decl.Specs, func(spec ast.Spec) bool {
			return slices.ContainsFunc(spec.(*ast.ValueSpec).Names, func(n *ast.Ident) bool { return variables[n.Name] })
		}) {
			return
		}
		var b strings.Builder
		for _, spec := range decl.Specs {
			spec := spec.(*ast.ValueSpec)
			for i, name := range spec.Names {
				kind, value := "const", s.of(spec.Values[i])
				if variables[name.Name] {
					kind = "var"
				}
				if other := chosen[name.Name]; len(other) > 0 {
					var breaks, values []string
					for j := 0; j < len(other); j += 2 {
						breaks, values = append(breaks, fmt.Sprintf("%q", other[j])), append(values, other[j+1])
					}
					value = fmt.Sprintf("choose_(%s, []string{%s}, %s)", value, strings.Join(breaks, ", "), strings.Join(values, ", "))
				}
				typed := ""
				if spec.Type != nil {
					typed = " " + s.of(spec.Type)
				}
				fmt.Fprintf(&b, "%s %s%s = %s\n", kind, name.Name, typed, value)
			}
		}
		m.splices[path] = append(m.splices[path], splice{s.offset(decl.Pos()), s.offset(decl.End()), b.String()})
	})
}
