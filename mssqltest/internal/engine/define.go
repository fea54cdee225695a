package engine

import (
	"strconv"
	"strings"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/lock"
)

// define runs the statements that change the catalog or the database's options.
func (s *Session) define(f *frame, n *node) error {
	if !s.granted("CREATE TABLE", wholeDatabase) || !s.has("ALTER", "dbo", "") {
		return severity(14, 262, "CREATE, ALTER or DROP permission denied in database '%s'.", s.e.db.name)
	}
	s.beginUnseen()
	own := s.tx == nil
	if own {
		s.tx = s.newTxn()
	}
	tx := s.tx
	mark := tx.mark()
	x := &exec{s: s, f: f, ctx: s.ctx, tx: tx, now: s.e.clock.Now()}
	err := whole(opening(n.text()), func() error { return s.defineIn(x, n) })
	if err != nil {
		tx.rollbackTo(mark)
	}
	if own {
		s.tx = nil
		if err != nil {
			tx.rollback(s.e.db)
		} else {
			tx.commit(s.e.db)
		}
	}
	if err == nil {
		s.done(n, 0, false)
	}
	return err
}

func (s *Session) defineIn(x *exec, n *node) error {
	switch st := n.st.(type) {
	case *ast.CreateTableStatement:
		return x.createTable(n, st)
	case *ast.CreateIndexStatement:
		return x.createIndex(n, st)
	case *ast.CreateSequenceStatement:
		return x.createSequence(n, st)
	case *ast.DropSequenceStatement:
		return x.dropObjects(st.Objects, st.IsIfExists, "sequence", func(o *object) bool { return o.sequence != nil })
	case *ast.CreateSchemaStatement:
		return x.createSchema(st)
	case *ast.CreateProcedureStatement:
		return x.createProc(n, st.ProcedureReference, st.Parameters, st.StatementList, create)
	case *ast.CreateOrAlterProcedureStatement:
		return x.createProc(n, st.ProcedureReference, st.Parameters, st.StatementList, createOrAlter)
	case *ast.AlterProcedureStatement:
		return x.createProc(n, st.ProcedureReference, st.Parameters, st.StatementList, alter)
	case *ast.CreateViewStatement:
		return x.createView(n, st, create)
	case *ast.CreateOrAlterViewStatement:
		return x.createView(n, (*ast.CreateViewStatement)(st), createOrAlter)
	case *ast.CreateTriggerStatement:
		return x.createTrigger(n, st)
	case *ast.AlterTableSetStatement:
		return x.alterTableSet(st)
	case *ast.AlterTableAddTableElementStatement:
		return x.alterTableAdd(n, st)
	case *ast.AlterDatabaseSetStatement:
		return x.alterDatabase(st)
	case *ast.DropTableStatement:
		return x.dropObjects(st.Objects, st.IsIfExists, "table", func(o *object) bool { return o.table != nil })
	case *ast.DropViewStatement:
		return x.dropObjects(st.Objects, st.IsIfExists, "view", func(o *object) bool { return o.view != nil })
	case *ast.DropProcedureStatement:
		return x.dropObjects(st.Objects, st.IsIfExists, "procedure", func(o *object) bool { return o.proc != nil })
	case *ast.DropSchemaStatement:
		return x.dropSchema(st)
	}
	if done, err := x.security(n.st); done {
		return err
	}
	return errUnsupportedAt(n.st)
}

// undo adds a function that undoes a change of the catalog.
func (x *exec) undo(fn func()) { x.tx.undo = append(x.tx.undo, undoRecord{fn: fn}) }

// tableFor finds a table and locks it against every other use.
func (x *exec) tableFor(name *ast.SchemaObjectName) (*table, error) {
	schema, base := nameOf(name)
	o := x.s.e.db.object(schema, base)
	if o == nil || o.table == nil {
		return nil, sqlError(4902, "Cannot find the object \"%s\" because it does not exist or you do not have permissions.", spelled(name))
	}
	return o.table, x.lockTable(o.table, lock.SchM, x.wait())
}

func (x *exec) createSchema(st *ast.CreateSchemaStatement) error {
	db := x.s.e.db
	if st.StatementList != nil && len(st.StatementList.Statements) > 0 {
		return errUnsupported("CREATE SCHEMA with elements")
	}
	if st.Name == nil {
		return errUnsupported("CREATE SCHEMA AUTHORIZATION")
	}
	key := lower(st.Name.Value)
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.schemas[key] != nil {
		return sqlError(2714, "There is already an object named '%s' in the database.", st.Name.Value)
	}
	db.schemas[key] = &schema{len(db.schemas) + 1, st.Name.Value}
	x.undo(func() {
		db.mu.Lock()
		defer db.mu.Unlock()
		delete(db.schemas, key)
	})
	return nil
}

func (x *exec) dropSchema(st *ast.DropSchemaStatement) error {
	db := x.s.e.db
	name := st.Schema.BaseIdentifier.Value
	key := lower(name)
	db.mu.Lock()
	defer db.mu.Unlock()
	was := db.schemas[key]
	if was == nil {
		if st.IsIfExists {
			return nil
		}
		return sqlError(15151, "Cannot drop the schema '%s', because it does not exist or you do not have permission.", name)
	}
	for _, o := range db.objects {
		if equalFold(o.schema, name) {
			return sqlError(3729, "Cannot drop schema '%s' because it is being referenced by object '%s'.", name, o.name)
		}
	}
	delete(db.schemas, key)
	x.undo(func() {
		db.mu.Lock()
		defer db.mu.Unlock()
		db.schemas[key] = was
	})
	return nil
}

// manner is whether the object may or must already exist.
type manner uint8

const (
	create manner = iota
	alter
	createOrAlter
)

func (x *exec) createProc(n *node, ref *ast.ProcedureReference, params []*ast.ProcedureParameter, body *ast.StatementList, how manner) error {
	db := x.s.e.db
	schema, name := nameOf(ref.Name)
	b := &batch{text: n.batch.text, names: map[string]*variable{}, stats: x.s.e.queryStats(batchKey{text: schema + "." + name})}
	list, err := procParams(params)
	if err != nil {
		return err
	}
	if err := b.declareParams(list); err != nil {
		return err
	}
	if err := b.compile(statements(body)); err != nil {
		return err
	}
	o := &object{schema: schema, name: name}
	o.proc = &proc{body: b, made: x.s.set.options & madeWith}
	was := db.object(schema, name)
	switch {
	case how != create && was != nil && was.proc != nil:
		x.undo(db.drop(was))
	case how == alter:
		return sqlError(208, "Invalid object name '%s'.", spelled(ref.Name))
	}
	undo, err := db.add(o)
	if err == nil {
		x.undo(undo)
	}
	return err
}

func (x *exec) createView(n *node, st *ast.CreateViewStatement, how manner) error {
	schema, name := nameOf(st.SchemaObjectName)
	if st.WithCheckOption || st.SelectStatement.WithCtesAndXmlNamespaces != nil {
		return errUnsupported("CREATE VIEW with CHECK OPTION or common table expressions")
	}
	// The view must compile immediately.
	c := &compiler{db: x.s.e.db, batch: n.batch, source: n.batch.text}
	if _, err := c.query(st.SelectStatement.QueryExpression); err != nil {
		return err
	}
	if was := x.s.e.db.object(schema, name); how == createOrAlter && was != nil && was.view != nil {
		x.undo(x.s.e.db.drop(was))
	}
	undo, err := x.s.e.db.add(&object{schema: schema, name: name,
		view: &view{columns: st.Columns, query: st.SelectStatement.QueryExpression}})
	if err == nil {
		x.undo(undo)
	}
	return err
}

func (x *exec) dropObjects(names []*ast.SchemaObjectName, ifExists bool, kind string, is func(*object) bool) error {
	for _, name := range names {
		schema, base := nameOf(name)
		o := x.s.e.db.object(schema, base)
		if o == nil || !is(o) {
			if ifExists {
				continue
			}
			return severity(11, 3701, "Cannot drop the %s '%s', because it does not exist or you do not have permission.", kind, spelled(name))
		}
		if o.table != nil {
			if err := x.lockTable(o.table, lock.SchM, x.wait()); err != nil {
				return err
			}
		}
		x.undo(x.s.e.db.drop(o))
	}
	return nil
}

func (x *exec) alterTableSet(st *ast.AlterTableSetStatement) error {
	t, err := x.tableFor(st.SchemaObjectName)
	if err != nil {
		return err
	}
	for _, o := range st.Options {
		switch o := o.(type) {
		case *ast.LockEscalationTableOption:
			value := strings.ToUpper(o.Value)
			if value != "DISABLE" && value != "TABLE" && value != "AUTO" {
				return errSyntaxNear(o.Value)
			}
			was := t.escalate
			t.escalate = value != "DISABLE"
			x.undo(func() { t.escalate = was })
		default:
			return errUnsupportedAt(o)
		}
	}
	return nil
}

var delayedDurability = map[string]int64{"DISABLED": 0, "ALLOWED": 1, "FORCED": 2}

func (x *exec) alterDatabase(st *ast.AlterDatabaseSetStatement) error {
	db := x.s.e.db
	if !st.UseCurrent && st.DatabaseName != nil && !equalFold(st.DatabaseName.Value, db.name) && !equalFold(st.DatabaseName.Value, "CURRENT") {
		return sqlError(5011, "User does not have permission to alter database '%s', the database does not exist, or the database is not in a state that allows access checks.", st.DatabaseName.Value)
	}
	for _, o := range st.Options {
		on, ok := o.(*ast.OnOffDatabaseOption)
		if !ok {
			if d, ok := o.(*ast.DelayedDurabilityDatabaseOption); ok {
				value, known := delayedDurability[strings.ToUpper(d.Value)]
				if !known {
					return errSyntaxNear(d.Value)
				}
				db.delayed.Store(value)
				continue
			}
			if l, ok := o.(*ast.LiteralDatabaseOption); ok && l.OptionKind == "CompatibilityLevel" {
				value, isNumber := l.Value.(*ast.IntegerLiteral)
				if !isNumber {
					return errUnsupported("COMPATIBILITY_LEVEL that is no number")
				}
				level, err := strconv.ParseInt(value.Value, 10, 64)
				if err != nil || level < 100 || level > 160 || level%10 != 0 {
					return sqlError(15048, "Valid values of the database compatibility level are 100, 110, 120, 130, 140, 150, or 160.")
				}
				db.level.Store(level)
				continue
			}
			return errUnsupportedAt(o)
		}
		is := strings.EqualFold(on.OptionState, "On")
		switch on.OptionKind {
		case "ReadCommittedSnapshot":
			db.rcsi.Store(is)
		case "AutoClose":
			db.autoClose.Store(is)
		case "AllowSnapshotIsolation":
			db.allowSnapshot.Store(is)
		default:
			return errUnsupported(on.OptionKind)
		}
	}
	return nil
}
