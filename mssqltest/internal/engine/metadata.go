package engine

import (
	"strings"

	"github.com/chanq/chanq/mssqltest/internal/lock"
	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// typeCode returns an object's type in sys.objects.
func (o *object) typeCode() string {
	switch {
	case o.table != nil:
		return "U "
	case o.view != nil:
		return "V "
	case o.trigger != nil:
		return "TR"
	case o.sequence != nil:
		return "SO"
	}
	return "P "
}

// findObject finds an object by a name in the form of OBJECT_ID. It waits for an object that another transaction is
// creating or dropping.
func findObject(x *exec, full string) *object {
	schema, name := splitName(full)
	if schema == "" {
		schema = "dbo"
	}
	o := x.s.e.db.object(schema, name)
	if o == nil || o.table == nil {
		return o
	}
	owner := x.s.e.locks.NewOwner(x.s.id, 0)
	defer owner.Release()
	if x.tx != nil {
		owner = x.tx.owner
		if owner.Held(lock.Resource{Object: o.id}) != lock.None {
			return o
		}
		if owner.Lock(x.ctx, lock.Resource{Object: o.id}, lock.SchS, x.wait()) == nil {
			owner.Unlock(lock.Resource{Object: o.id}, lock.SchS)
		}
	} else if owner.Lock(x.ctx, lock.Resource{Object: o.id}, lock.SchS, x.wait()) != nil {
		return nil
	}
	return x.s.e.db.object(schema, name)
}

func objectID(_ *compiler, args []*scalar) (*scalar, error) {
	text := make([]*scalar, len(args))
	for i, a := range args {
		text[i] = cast(a, typeText, 0)
	}
	return strict(typeInt, text, func(x *exec, v []sqltype.Value) (sqltype.Value, error) {
		o := findObject(x, v[0].(string))
		if o == nil || !x.s.sees(o) {
			return nil, nil
		}
		if len(v) == 2 {
			if !strings.EqualFold(strings.TrimSpace(o.typeCode()), strings.TrimSpace(v[1].(string))) {
				return nil, nil
			}
		}
		return int64(o.id), nil
	}), nil
}

func schemaID(_ *compiler, args []*scalar) (*scalar, error) {
	return strict(typeInt, []*scalar{cast(args[0], typeText, 0)}, func(x *exec, v []sqltype.Value) (sqltype.Value, error) {
		return x.s.e.db.schemaID(v[0].(string)), nil
	}), nil
}

// schemaID returns NULL if there is no such schema.
func (db *database) schemaID(name string) sqltype.Value {
	db.mu.RLock()
	defer db.mu.RUnlock()
	if s := db.schemas[lower(name)]; s != nil {
		return int64(s.id)
	}
	return nil
}

// bytesOf returns a column's max_length.
func bytesOf(t sqltype.Type) (int64, error) {
	switch t.Kind {
	case sqltype.VarBinary:
		if t.Size != sqltype.Max {
			return int64(t.Size), nil
		}
	case sqltype.SmallInt:
		return 2, nil
	case sqltype.Int:
		return 4, nil
	case sqltype.BigInt:
		return 8, nil
	case sqltype.DateTime2:
		return int64(6 + (max(1, int(t.Scale))-1)/2), nil
	}
	return 0, errUnsupported("COL_LENGTH of a column of type " + kindName(t.Kind))
}

func colLength(_ *compiler, args []*scalar) (*scalar, error) {
	return strict(typeSmallInt, []*scalar{cast(args[0], typeText, 0), cast(args[1], typeText, 0)}, func(x *exec, v []sqltype.Value) (sqltype.Value, error) {
		o := findObject(x, v[0].(string))
		if o == nil || o.table == nil || !x.s.sees(o) {
			return nil, nil
		}
		at := o.table.column(strings.Trim(v[1].(string), "[]"))
		if at < 0 {
			return nil, nil
		}
		return bytesOf(o.table.cols[at].typ)
	}), nil
}

func indexProperty(_ *compiler, args []*scalar) (*scalar, error) {
	return strict(typeInt, []*scalar{cast(args[0], typeBigInt, 0), cast(args[1], typeText, 0), cast(args[2], typeText, 0)}, func(x *exec, v []sqltype.Value) (sqltype.Value, error) {
		if !strings.EqualFold(v[2].(string), "IndexID") {
			return nil, errUnsupported("INDEXPROPERTY but IndexID")
		}
		for _, o := range x.s.e.db.list() {
			if int64(o.id) == v[0].(int64) && o.table != nil && x.s.sees(o) {
				if ix := o.table.indexNamed(v[1].(string)); ix != nil {
					return int64(ix.id), nil
				}
			}
		}
		return nil, nil
	}), nil
}
