package engine

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/internal/testdb/mssqltest/sqltype"
)

// jsonField is one member of an object or element of an array, in order.
type jsonField struct {
	key string
	raw json.RawMessage
}

func errJSON(text string) error {
	first := "."
	if t := strings.TrimSpace(text); t != "" {
		first = t[:1]
	}
	return sqlError(13609, "JSON text is not properly formatted. Unexpected character '%s' is found at position 0.", first)
}

// members lists what is in an object or array.
func members(raw json.RawMessage) ([]jsonField, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	open, err := dec.Token()
	if err != nil {
		return nil, err
	}
	var out []jsonField
	for i := 0; dec.More(); i++ {
		f := jsonField{key: strconv.Itoa(i)}
		if open == json.Delim('{') {
			k, err := dec.Token()
			if err != nil {
				return nil, err
			}
			f.key = k.(string)
		}
		if err := dec.Decode(&f.raw); err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// jsonPath follows a path of the kind $.a.b[0]; ok is false where it leads
// nowhere, which is lax mode's NULL.
func jsonPath(raw json.RawMessage, path string) (json.RawMessage, bool, error) {
	path = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(path), "lax "))
	if !strings.HasPrefix(path, "$") {
		return nil, false, sqlError(13607, "JSON path is not properly formatted. Unexpected character '%s' is found at position 0.", path)
	}
	path = path[1:]
	for path != "" {
		var key string
		switch {
		case path[0] == '.' && len(path) > 1 && path[1] == '"':
			end := strings.IndexByte(path[2:], '"')
			if end < 0 {
				return nil, false, sqlError(13607, "JSON path is not properly formatted.")
			}
			key, path = path[2:2+end], path[end+3:]
		case path[0] == '.':
			end := strings.IndexAny(path[1:], ".[")
			if end < 0 {
				end = len(path) - 1
			}
			key, path = path[1:1+end], path[1+end:]
		case path[0] == '[' && strings.Contains(path, "]"):
			end := strings.IndexByte(path, ']')
			key, path = path[1:end], path[end+1:]
		default:
			return nil, false, sqlError(13607, "JSON path is not properly formatted. Unexpected character '%c' is found.", path[0])
		}
		list, err := members(raw)
		if err != nil {
			return nil, false, nil
		}
		found := false
		for _, f := range list {
			if f.key == key {
				raw, found = f.raw, true
				break
			}
		}
		if !found {
			return nil, false, nil
		}
	}
	return raw, true, nil
}

// jsonKind is the column type of OPENJSON: 0 null, 1 string, 2 number, 3
// boolean, 4 array, 5 object.
func jsonKind(raw json.RawMessage) int64 {
	switch raw[0] {
	case 'n':
		return 0
	case '"':
		return 1
	case 't', 'f':
		return 3
	case '[':
		return 4
	case '{':
		return 5
	}
	return 2
}

func jsonText(raw json.RawMessage) sqltype.Value {
	switch jsonKind(raw) {
	case 0:
		return nil
	case 1:
		var s string
		_ = json.Unmarshal(raw, &s)
		return s
	}
	return string(raw)
}

// openJSON compiles OPENJSON, with and without WITH.
func (c *compiler) openJSON(r *ast.OpenJsonTableReference) (from, error) {
	text, err := c.scalar(r.Variable)
	if err != nil {
		return from{}, err
	}
	args := []*scalar{cast(text, typeText, 0)}
	if r.RowPattern != nil {
		p, err := c.scalar(r.RowPattern)
		if err != nil {
			return from{}, err
		}
		args = append(args, cast(p, typeText, 0))
	}
	columns := cols("key", sqltype.Type{Kind: sqltype.NVarChar, Size: 4000}, "value", typeText, "type", typeTinyInt)
	row := func(f jsonField) (Row, error) { return Row{f.key, jsonText(f.raw), jsonKind(f.raw)}, nil }
	if len(r.SchemaDeclarationItems) > 0 {
		if columns, row, err = c.jsonColumns(r.SchemaDeclarationItems); err != nil {
			return from{}, err
		}
	}
	refs := slotSet(0)
	for _, a := range args {
		refs |= a.refs
	}
	src, f, err := c.rowsSource(columns, refs, func(x *exec) ([]Row, error) {
		v, ok, err := values(x, args)
		if err != nil || !ok {
			return nil, err
		}
		raw := json.RawMessage(v[0].(string))
		if !json.Valid(raw) {
			return nil, errJSON(string(raw))
		}
		raw = bytes.TrimSpace(raw)
		if len(v) > 1 {
			if raw, ok, err = jsonPath(raw, v[1].(string)); err != nil || !ok {
				return nil, err
			}
		}
		list := []jsonField{{raw: raw}}
		if raw[0] == '[' || len(r.SchemaDeclarationItems) == 0 {
			if list, err = members(raw); err != nil {
				return nil, errJSON(string(raw))
			}
		}
		out := make([]Row, len(list))
		for i, m := range list {
			if out[i], err = row(m); err != nil {
				return nil, err
			}
		}
		return out, nil
	})
	if err != nil {
		return f, err
	}
	src.alias = aliasOf(r.Alias)
	c.scope.sources = append(c.scope.sources, src)
	return f, nil
}

// jsonColumns compiles the columns of WITH: each has a type and a path.
func (c *compiler) jsonColumns(items []*ast.SchemaDeclarationItemOpenjson) ([]outCol, func(jsonField) (Row, error), error) {
	var out []outCol
	var paths []string
	for _, it := range items {
		t, err := typeOf(it.ColumnDefinition.DataType, 1)
		if err != nil {
			return nil, nil, err
		}
		name := it.ColumnDefinition.ColumnIdentifier.Value
		out = append(out, outCol{name: name, typ: t})
		path := "$.\"" + name + "\""
		if lit, ok := it.Mapping.(*ast.StringLiteral); ok {
			path = lit.Value
		}
		paths = append(paths, path)
	}
	return out, func(f jsonField) (Row, error) {
		row := make(Row, len(out))
		for i, col := range out {
			raw, ok, err := jsonPath(f.raw, paths[i])
			if err != nil {
				return nil, err
			}
			if !ok {
				continue
			}
			scalarKind := jsonKind(raw) < 4
			if scalarKind == items[i].AsJson {
				continue
			}
			v := jsonText(raw)
			if items[i].AsJson {
				v = string(raw)
			}
			if row[i], err = convert(v, typeText, col.typ, 0); err != nil {
				return nil, err
			}
		}
		return row, nil
	}, nil
}
