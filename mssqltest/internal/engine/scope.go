package engine

import (
	"strings"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// slotSet is a set of range variables of one statement.
type slotSet uint64

func (s slotSet) has(i int) bool { return s>>i&1 == 1 }

func (s slotSet) within(other slotSet) bool { return s&^other == 0 }

// colUse is a column of a range variable.
type colUse struct{ slot, col int }

// scalar is a compiled expression.
type scalar struct {
	typ      sqltype.Type
	eval     func(*exec) (sqltype.Value, error)
	refs     slotSet
	cols     []colUse
	col      *colUse // set if it is a plain column
	name     string  // of that column
	nullable bool
	volatile bool // NEWID: each evaluation differs
}

// tri is a truth value of SQL.
type tri uint8

const (
	isFalse tri = iota
	isTrue
	isUnknown
)

func triOf(b bool) tri {
	if b {
		return isTrue
	}
	return isFalse
}

// cond is a compiled predicate.
type cond struct {
	eval func(*exec) (tri, error)
	refs slotSet
	cols []colUse
	args []sarg
	text string // to recognize the predicate of a filtered index
}

// sarg describes a predicate that compares a column with a value that does not depend on it, for which an index can be
// searched.
type sarg struct {
	col  colUse
	op   string // = < <= > >= null in
	val  *scalar
	list []*scalar
}

// source is one name in a FROM clause and its columns.
type source struct {
	alias  string // lower case
	schema string // of a table without an alias
	cols   []binding
	target *baseUse // the only table that a change through this name changes
	joined bool     // with others: an UPDATE is allowed, an INSERT or a DELETE is not
}

type binding struct {
	name string
	sc   *scalar
}

// named returns the scalar with the name that a query uses: an expression of a derived table or a view has no own name,
// and a renamed column has another.
func (b *binding) named() *scalar {
	if b.sc.name == b.name {
		return b.sc
	}
	sc := *b.sc
	sc.name = b.name
	return &sc
}

// scope is where column names are looked up: the sources of one SELECT, then those around it.
type scope struct {
	parent  *scope
	sources []*source
}

// add puts the names of a source in scope. No other source may have its name, and its columns must have names.
func (sc *scope) add(src *source) error {
	for i, col := range src.cols {
		if col.name == "" {
			return sqlError(8155, "No column name was specified for column %d of '%s'.", i+1, src.alias)
		}
	}
	for _, other := range sc.sources {
		if other.alias == src.alias && strings.EqualFold(other.schema, src.schema) {
			return sqlError(1011, "The correlation name '%s' is specified multiple times in a FROM clause.", src.alias)
		}
	}
	sc.sources = append(sc.sources, src)
	return nil
}

// resolve finds a column by its name, which may be qualified.
func (sc *scope) resolve(parts []*ast.Identifier) (*scalar, error) {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.Value
	}
	column := names[len(names)-1]
	for at := sc; at != nil; at = at.parent {
		var found *scalar
		matched := false
		for _, src := range at.sources {
			if !src.matches(names[:len(names)-1]) {
				continue
			}
			matched = true
			for i := range src.cols {
				if strings.EqualFold(src.cols[i].name, column) {
					if found != nil {
						return nil, errAmbiguous(column)
					}
					found = src.cols[i].named()
				}
			}
		}
		if found != nil {
			return found, nil
		}
		if matched && len(names) > 1 {
			return nil, errNoColumn(column)
		}
	}
	if len(names) > 1 {
		return nil, errUnbound(strings.Join(names, "."))
	}
	return nil, errNoColumn(column)
}

func (src *source) matches(qualifier []string) bool {
	switch len(qualifier) {
	case 0:
		return true
	case 1:
		return strings.EqualFold(src.alias, qualifier[0])
	}
	return src.schema != "" && strings.EqualFold(src.alias, qualifier[len(qualifier)-1]) &&
		strings.EqualFold(src.schema, qualifier[len(qualifier)-2])
}

func (src *source) column(name string) *binding {
	for i := range src.cols {
		if strings.EqualFold(src.cols[i].name, name) {
			return &src.cols[i]
		}
	}
	return nil
}
