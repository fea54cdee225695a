package engine

import (
	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// systemView is one view of the schema sys: its columns and its rows.
type systemView struct {
	cols []outCol
	rows func(x *exec) ([]Row, error)
}

func cols(list ...any) []outCol {
	var out []outCol
	for i := 0; i < len(list); i += 2 {
		out = append(out, outCol{name: list[i].(string), typ: list[i+1].(sqltype.Type)})
	}
	return out
}

// systemViews has only the views and columns that are used. Those of sessions are in sessionviews.go.
var systemViews = map[string]systemView{
	"objects": {cols("name", typeSysname, "object_id", typeInt, "type", sqltype.Type{Kind: sqltype.Char, Size: 2}, "schema_id", typeInt),
		func(x *exec) ([]Row, error) { return objectRows(x, func(*object) bool { return true }), nil }},
	"tables": {cols("name", typeSysname, "object_id", typeInt, "type", sqltype.Type{Kind: sqltype.Char, Size: 2}, "schema_id", typeInt),
		func(x *exec) ([]Row, error) {
			return objectRows(x, func(o *object) bool { return o.table != nil }), nil
		}},
	"sequences": {cols("name", typeSysname, "object_id", typeInt, "current_value", typeBigInt), sequenceRows},
	"databases": {cols("name", typeSysname, "database_id", typeInt, "is_read_committed_snapshot_on", typeBit,
		"snapshot_isolation_state", typeTinyInt, "delayed_durability", typeInt,
		"is_auto_close_on", typeBit, "compatibility_level", typeTinyInt),
		func(x *exec) ([]Row, error) {
			db := x.s.e.db
			return []Row{{db.name, databaseID, db.rcsi.Load(), int64(boolInt(db.allowSnapshot.Load())), db.delayed.Load(), db.autoClose.Load(), db.level.Load()}}, nil
		}},
}

func (c *compiler) systemView(name string) (*source, from, error) {
	v, ok := systemViews[lower(name)]
	if !ok {
		return nil, from{}, errUnsupported("sys." + name)
	}
	return c.rowsSource(v.cols, 0, v.rows)
}

func objectRows(x *exec, is func(*object) bool) []Row {
	var out []Row
	for _, o := range x.s.e.db.list() {
		if is(o) && x.s.sees(o) {
			out = append(out, Row{o.name, int64(o.id), o.typeCode(), x.s.e.db.schemaID(o.schema)})
		}
	}
	return out
}
