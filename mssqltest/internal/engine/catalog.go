package engine

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// database is the only user database of an Engine: its objects and the state that its transactions share.
type database struct {
	name string

	rcsi          atomic.Bool  // READ_COMMITTED_SNAPSHOT
	allowSnapshot atomic.Bool  // ALLOW_SNAPSHOT_ISOLATION
	autoClose     atomic.Bool  // AUTO_CLOSE, which has no effect here
	level         atomic.Int64 // COMPATIBILITY_LEVEL, which has no effect here
	delayed       atomic.Int64 // DELAYED_DURABILITY, with the number of sys.databases

	version atomic.Uint64 // grows with each change of the catalog: a plan is valid for one version

	mu      sync.RWMutex // guards the following fields
	schemas map[string]*schema
	objects map[string]*object // by lower-case schema.name
	users   map[string]*user
	nextID  uint32

	versions versionStore
}

type schema struct {
	id   int
	name string
}

// object is one of table, view and proc.
type object struct {
	id      uint32
	schema  string
	name    string
	table   *table
	view    *view
	proc    *proc
	trigger *trigger

	sequence *sequence
}

// view is a view's SELECT, compiled at each use.
type view struct {
	columns []*ast.Identifier
	query   ast.QueryExpression
}

// proc is a stored procedure: a batch with parameters.
type proc struct {
	body *batch
	made options // the creator's options that it keeps
}

// user is a user or a role.
type user struct {
	name    string
	granted map[string]bool // by permission, object and perhaps column
	roles   []*user         // of which it is a member
}

// column is one column of a table.
type column struct {
	name      string
	typ       sqltype.Type
	nullable  bool
	identity  bool
	byDefault *scalar
	defName   string
}

// table is a table, a table variable or the rows of a table-valued parameter.
type table struct {
	db           *database
	id           uint32
	schema, name string
	private      bool // a table variable: no locks, not part of transactions
	cols         []*column
	byName       map[string]int
	escalate     bool
	triggers     []*trigger
	checks       []*checkConstraint

	seed, increment int64

	indexNames sync.Map // by ID: of locks, which are named while the latch is held

	latch        sync.RWMutex // guards the following fields; never held while waiting for a lock
	indexes      []*index     // [0] is the clustered index or the heap
	nextRecord   uint64
	nextIdentity int64
	live         int // rows, counting uncommitted changes
}

// index is a clustered index, a heap (without columns) or a secondary index.
type index struct {
	table      *table
	at         int    // in table.indexes
	id         uint16 // as in sys.indexes
	name       string
	cols       []int // of the key as declared
	unique     bool
	primary    bool
	clustered  bool
	filter     *cond
	filterText string
	tail       []int // columns of the clustered key that complete the key
	rid        bool  // the record's number completes the key
	tree       *tree
}

func (t *table) qualified() string { return t.schema + "." + t.name }

func (t *table) fullName() string {
	if t.private {
		return t.name
	}
	return t.db.name + "." + t.schema + "." + t.name
}

func (t *table) base() *index { return t.indexes[0] }

func (t *table) column(name string) int {
	if i, ok := t.byName[strings.ToLower(name)]; ok {
		return i
	}
	return -1
}

func (t *table) addColumn(c *column) {
	t.byName[strings.ToLower(c.name)] = len(t.cols)
	t.cols = append(t.cols, c)
}

// indexNamed finds an index by name; a hint can also use its number.
func (t *table) indexNamed(name string) *index {
	for _, ix := range t.indexes {
		if strings.EqualFold(ix.name, name) {
			return ix
		}
	}
	return nil
}

func newTable(db *database, schema, name string) *table {
	t := &table{db: db, schema: schema, name: name, byName: map[string]int{}, escalate: true, increment: 1}
	heap := &index{table: t, rid: true, tree: newTree()}
	t.indexes = []*index{heap}
	return t
}

// addIndex completes ix and makes it part of t. t has no rows yet, or the caller enters them.
func (t *table) addIndex(ix *index) {
	ix.table, ix.tree = t, newTree()
	if ix.clustered {
		ix.at, ix.id, ix.rid = 0, 1, !ix.unique
		t.indexes[0] = ix
		t.indexNames.Store(ix.id, ix.name)
		for _, other := range t.indexes[1:] {
			t.complete(other)
		}
		return
	}
	ix.at = len(t.indexes)
	ix.id = uint16(max(2, ix.at+1))
	t.indexNames.Store(ix.id, ix.name)
	t.complete(ix)
	t.indexes = append(t.indexes, ix)
}

// complete adds to a secondary index the columns that lead to the row.
func (t *table) complete(ix *index) {
	ix.tail, ix.rid = nil, false
	if ix.unique {
		return
	}
	base := t.base()
	has := map[int]bool{}
	for _, c := range ix.cols {
		has[c] = true
	}
	for _, c := range base.cols {
		if !has[c] {
			ix.tail = append(ix.tail, c)
		}
	}
	ix.rid = base.rid
}

func (db *database) bump() uint64 { return db.version.Add(1) }

func objectKey(schema, name string) string {
	return strings.ToLower(schema) + "." + strings.ToLower(name)
}

func (db *database) object(schema, name string) *object {
	db.mu.RLock()
	defer db.mu.RUnlock()
	return db.objects[objectKey(schema, name)]
}

// add puts o in the catalog; undo removes it again.
func (db *database) add(o *object) (undo func(), err error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.schemas[strings.ToLower(o.schema)] == nil {
		return nil, sqlError(2760, "The specified schema name \"%s\" either does not exist or you do not have permission to use it.", o.schema)
	}
	key := objectKey(o.schema, o.name)
	if db.objects[key] != nil {
		return nil, sqlError(2714, "There is already an object named '%s' in the database.", o.name)
	}
	db.nextID++
	o.id = db.nextID
	if o.table != nil {
		o.table.id = o.id
	}
	db.objects[key] = o
	db.bump()
	return func() { db.drop(o) }, nil
}

// drop removes o from the catalog; undo restores it.
func (db *database) drop(o *object) (undo func()) {
	db.mu.Lock()
	defer db.mu.Unlock()
	delete(db.objects, objectKey(o.schema, o.name))
	db.bump()
	return func() {
		db.mu.Lock()
		defer db.mu.Unlock()
		db.objects[objectKey(o.schema, o.name)] = o
		db.bump()
	}
}

// tableOf returns the table with an ID, or nil.
func (db *database) tableOf(id uint32) *table {
	db.mu.RLock()
	defer db.mu.RUnlock()
	for _, o := range db.objects {
		if o.id == id {
			return o.table
		}
	}
	return nil
}

// list returns the objects in the order of their creation.
func (db *database) list() []*object {
	db.mu.RLock()
	defer db.mu.RUnlock()
	all := make([]*object, 0, len(db.objects))
	for id := uint32(0); id <= db.nextID && len(all) < len(db.objects); id++ {
		for _, o := range db.objects {
			if o.id == id {
				all = append(all, o)
			}
		}
	}
	return all
}

// nameOf splits an object's name; the default schema is "dbo".
func nameOf(n *ast.SchemaObjectName) (schema, name string) {
	schema = "dbo"
	if n.SchemaIdentifier != nil && n.SchemaIdentifier.Value != "" {
		schema = n.SchemaIdentifier.Value
	}
	return schema, n.BaseIdentifier.Value
}

// spelled returns the name as it was written.
func spelled(n *ast.SchemaObjectName) string {
	parts := make([]string, len(n.Identifiers))
	for i, p := range n.Identifiers {
		parts[i] = p.Value
	}
	return strings.Join(parts, ".")
}
