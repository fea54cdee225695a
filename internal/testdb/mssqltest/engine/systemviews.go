package engine

import (
	"github.com/chanq/chanq/internal/testdb/mssqltest/sqltype"
)

// systemView is one view of the schema sys: its columns and its rows.
type systemView struct {
	cols []outCol
	rows func(x *exec) []Row
}

func cols(list ...any) []outCol {
	var out []outCol
	for i := 0; i < len(list); i += 2 {
		out = append(out, outCol{name: list[i].(string), typ: list[i+1].(sqltype.Type)})
	}
	return out
}

var typeCode = sqltype.Type{Kind: sqltype.Char, Size: 2}

var objectCols = cols("name", typeSysname, "object_id", typeInt, "schema_id", typeInt, "parent_object_id", typeInt,
	"type", typeCode, "type_desc", typeSysname, "create_date", typeDateTime, "modify_date", typeDateTime, "is_ms_shipped", typeBit)

func (c *compiler) systemView(name string) (*source, from, error) {
	v, ok := systemViews[lower(name)]
	if !ok {
		return nil, from{}, errNoObject("sys." + name)
	}
	return c.rowsSource(v.cols, 0, func(x *exec) ([]Row, error) { return v.rows(x), nil })
}

func (x *exec) objectRow(o *object) Row {
	code, description := o.typeCode()
	parent := int64(0)
	if o.trigger != nil {
		parent = int64(o.trigger.table.id)
	}
	made, _ := roundTime(o.made, typeDateTime)
	return Row{o.name, int64(o.id), x.schemaOf(o.schema), parent, code, description, made, made, false}
}

func (x *exec) schemaOf(name string) sqltype.Value {
	db := x.s.e.db
	db.mu.RLock()
	defer db.mu.RUnlock()
	if s := db.schemas[lower(name)]; s != nil {
		return int64(s.id)
	}
	return nil
}

// objects lists the objects that a view shows.
func objects(is func(*object) bool, row func(x *exec, o *object) []Row) func(*exec) []Row {
	return func(x *exec) []Row {
		var out []Row
		for _, o := range x.s.e.db.list() {
			if is(o) {
				out = append(out, row(x, o)...)
			}
		}
		return out
	}
}

func isTable(o *object) bool { return o.table != nil }

func anyObject(*object) bool { return true }

var systemViews map[string]systemView

func init() {
	objectRows := func(x *exec, o *object) []Row { return []Row{x.objectRow(o)} }
	systemViews = map[string]systemView{
		"objects":     {objectCols, objects(anyObject, objectRows)},
		"all_objects": {objectCols, objects(anyObject, objectRows)},
		"procedures":  {objectCols, objects(func(o *object) bool { return o.proc != nil }, objectRows)},
		"views":       {objectCols, objects(func(o *object) bool { return o.view != nil }, objectRows)},
		"tables": {append(append([]outCol(nil), objectCols...), cols("lock_escalation", typeTinyInt, "lock_escalation_desc", typeSysname)...),
			objects(isTable, func(x *exec, o *object) []Row {
				level, name := int64(0), "TABLE"
				if !o.table.escalate {
					level, name = 1, "DISABLE"
				}
				return []Row{append(x.objectRow(o), level, name)}
			})},
		"triggers": {cols("name", typeSysname, "object_id", typeInt, "parent_id", typeInt, "is_disabled", typeBit, "is_instead_of_trigger", typeBit),
			objects(func(o *object) bool { return o.trigger != nil }, func(_ *exec, o *object) []Row {
				return []Row{{o.trigger.name, int64(o.id), int64(o.trigger.table.id), o.trigger.off, false}}
			})},
		"schemas": {cols("name", typeSysname, "schema_id", typeInt, "principal_id", typeInt), func(x *exec) []Row {
			db := x.s.e.db
			db.mu.RLock()
			defer db.mu.RUnlock()
			var out []Row
			for _, s := range db.schemas {
				out = append(out, Row{s.name, int64(s.id), int64(1)})
			}
			return out
		}},
		"columns": {cols("object_id", typeInt, "name", typeSysname, "column_id", typeInt, "system_type_id", typeTinyInt, "user_type_id", typeInt,
			"max_length", typeSmallInt, "precision", typeTinyInt, "scale", typeTinyInt, "is_nullable", typeBit, "is_identity", typeBit,
			"default_object_id", typeInt),
			objects(isTable, func(_ *exec, o *object) []Row {
				var out []Row
				for i, c := range o.table.cols {
					id := systemTypeID(c.typ.Kind)
					byDefault := int64(0)
					if c.byDefault != nil {
						byDefault = int64(o.id)*1000 + int64(i)
					}
					out = append(out, Row{int64(o.id), c.name, int64(i + 1), id, id, bytesOf(c.typ), int64(c.typ.Precision), int64(c.typ.Scale),
						c.nullable, c.identity, byDefault})
				}
				return out
			})},
		"types": {cols("name", typeSysname, "system_type_id", typeTinyInt, "user_type_id", typeInt, "schema_id", typeInt, "is_table_type", typeBit), typeRows},
		"table_types": {cols("name", typeSysname, "system_type_id", typeTinyInt, "user_type_id", typeInt, "schema_id", typeInt, "is_table_type", typeBit),
			func(x *exec) []Row {
				var out []Row
				for _, r := range typeRows(x) {
					if r[4] == true {
						out = append(out, r)
					}
				}
				return out
			}},
		"indexes": {cols("object_id", typeInt, "name", typeSysname, "index_id", typeInt, "type", typeTinyInt, "type_desc", typeSysname,
			"is_unique", typeBit, "is_primary_key", typeBit, "is_unique_constraint", typeBit, "is_disabled", typeBit, "has_filter", typeBit,
			"filter_definition", typeText),
			objects(isTable, func(_ *exec, o *object) []Row {
				var out []Row
				for _, ix := range o.table.indexes {
					if ix != nil {
						out = append(out, ix.row(o))
					}
				}
				return out
			})},
		"index_columns": {cols("object_id", typeInt, "index_id", typeInt, "index_column_id", typeInt, "column_id", typeInt, "key_ordinal", typeTinyInt,
			"is_descending_key", typeBit, "is_included_column", typeBit),
			objects(isTable, func(_ *exec, o *object) []Row {
				var out []Row
				for _, ix := range o.table.indexes {
					if ix == nil {
						continue
					}
					for i, c := range ix.cols {
						out = append(out, Row{int64(o.id), int64(ix.id), int64(i + 1), int64(c + 1), int64(i + 1), ix.desc[i], false})
					}
					for i, c := range ix.include {
						out = append(out, Row{int64(o.id), int64(ix.id), int64(len(ix.cols) + i + 1), int64(c + 1), int64(0), false, true})
					}
				}
				return out
			})},
		"partitions": {cols("partition_id", typeBigInt, "object_id", typeInt, "index_id", typeInt, "partition_number", typeInt, "rows", typeBigInt),
			objects(isTable, func(_ *exec, o *object) []Row {
				t := o.table
				t.latch.RLock()
				defer t.latch.RUnlock()
				var out []Row
				for _, ix := range t.indexes {
					if ix != nil {
						out = append(out, Row{int64(o.id)<<16 + int64(ix.id), int64(o.id), int64(ix.id), int64(1), int64(t.live)})
					}
				}
				return out
			})},
		"databases": {cols("name", typeSysname, "database_id", typeInt, "is_read_committed_snapshot_on", typeBit, "snapshot_isolation_state", typeTinyInt,
			"compatibility_level", typeTinyInt, "delayed_durability", typeInt, "is_read_only", typeBit),
			func(x *exec) []Row {
				db := x.s.e.db
				return []Row{{db.name, int64(5), db.rcsi.Load(), int64(boolInt(db.allowSnapshot.Load())), int64(160), db.delayed.Load(), false}}
			}},
		"default_constraints": {cols("name", typeSysname, "parent_object_id", typeInt, "parent_column_id", typeInt),
			objects(isTable, func(_ *exec, o *object) []Row {
				var out []Row
				for i, c := range o.table.cols {
					if c.byDefault != nil {
						out = append(out, Row{c.defName, int64(o.id), int64(i + 1)})
					}
				}
				return out
			})},
		"dm_tran_locks": {cols("request_session_id", typeInt, "resource_type", typeSysname, "resource_associated_entity_id", typeBigInt,
			"request_mode", typeSysname, "request_status", typeSysname),
			func(x *exec) []Row {
				var out []Row
				for _, l := range x.s.e.locks.Snapshot() {
					kind, status := "OBJECT", "GRANT"
					switch {
					case l.Resource.App != "":
						kind = "APPLICATION"
					case l.Resource.Key != "" && l.Resource.Index == 0:
						kind = "RID"
					case l.Resource.Key != "":
						kind = "KEY"
					}
					if l.Waiting {
						status = "WAIT"
					}
					out = append(out, Row{int64(l.Session), kind, int64(l.Resource.Object), l.Mode.String(), status})
				}
				return out
			}},
	}
}

func typeRows(x *exec) []Row {
	var out []Row
	for name, k := range kindNames {
		out = append(out, Row{name, systemTypeID(k), systemTypeID(k), int64(4), false})
	}
	db := x.s.e.db
	db.mu.RLock()
	defer db.mu.RUnlock()
	for _, t := range db.types {
		id := int64(1)
		if s := db.schemas[lower(t.schema)]; s != nil {
			id = int64(s.id)
		}
		out = append(out, Row{t.name, int64(243), int64(257), id, true})
	}
	return out
}

func (ix *index) row(o *object) Row {
	kind, name := int64(2), "NONCLUSTERED"
	var label sqltype.Value = ix.name
	switch {
	case ix.clustered:
		kind, name = 1, "CLUSTERED"
	case ix.id == 0:
		kind, name, label = 0, "HEAP", nil
	}
	var filter sqltype.Value
	if ix.filter != nil {
		filter = "(" + ix.filterText + ")"
	}
	return Row{int64(o.id), label, int64(ix.id), kind, name, ix.unique, ix.primary, ix.constraint && !ix.primary, false, ix.filter != nil, filter}
}
