package engine

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/mssqltest/internal/lock"
	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// The dynamic management views of sessions: open transactions, locks, and which session waits for which. As on a server, a
// login without VIEW SERVER STATE sees only its own session, or is refused.

// seen is what other sessions can see of a session: times of the server's clock, in nanoseconds; 0 is none.
type seen struct {
	request  atomic.Int64 // start of the current request
	began    atomic.Int64 // start of the open transaction
	tx       atomic.Uint64
	snapshot atomic.Int64 // start of the snapshot that keeps row versions
	waits    atomic.Int64 // start of the current wait for a lock
	level    atomic.Int64 // isolation level: of the open transaction, or the last SET
}

func (s *Session) note(at *atomic.Int64) { at.Store(s.e.clock.Now().UnixNano()) }

// waited is called by the lock manager for each wait that begins.
func (e *Engine) waited(i lock.Info) {
	if s, ok := e.sessions.Load(i.Session); ok {
		s := s.(*Session)
		s.note(&s.seen.waits)
	}
	if e.opts.OnWait != nil {
		e.opts.OnWait(i)
	}
}

// visible returns the sessions that x can see, by number.
func visible(x *exec) []*Session {
	var list []*Session
	all := x.s.granted(viewServerState, wholeDatabase)
	x.s.e.sessions.Range(func(_, v any) bool {
		if s := v.(*Session); all || s == x.s {
			list = append(list, s)
		}
		return true
	})
	slices.SortFunc(list, func(a, b *Session) int { return a.id - b.id })
	return list
}

const viewServerState = "VIEW SERVER STATE"

// needServerState refuses a login without that permission.
func needServerState(x *exec) error {
	if x.s.granted(viewServerState, wholeDatabase) {
		return nil
	}
	return severity(14, 300, "%s permission was denied on object 'server', database 'master'.", viewServerState)
}

func init() {
	typeTinyText := sqltype.Type{Kind: sqltype.NVarChar, Size: 60}
	for name, v := range map[string]systemView{
		"dm_exec_sessions": {cols("session_id", typeSmallInt, "program_name", typeSysname, "host_name", typeSysname, "login_name", typeSysname,
			"status", typeTinyText, "is_user_process", typeBit, "database_id", typeSmallInt, "transaction_isolation_level", typeSmallInt), sessionRows},
		"dm_tran_locks": {cols("resource_type", typeTinyText, "resource_database_id", typeInt, "resource_associated_entity_id", typeBigInt,
			"request_mode", typeTinyText, "request_status", typeTinyText, "request_session_id", typeInt), lockRows},
		"partitions": {cols("object_id", typeInt, "index_id", typeInt, "hobt_id", typeBigInt, "rows", typeBigInt), partitionRows},
		"dm_exec_requests": {cols("session_id", typeSmallInt, "status", typeTinyText, "database_id", typeSmallInt,
			"blocking_session_id", typeSmallInt, "wait_type", typeTinyText, "wait_time", typeInt), requestRows},
		"dm_tran_session_transactions": {cols("session_id", typeInt, "transaction_id", typeBigInt), transactionRows(func(s *Session) Row {
			return Row{int64(s.id), int64(s.seen.tx.Load())}
		})},
		"dm_tran_active_transactions": {cols("transaction_id", typeBigInt, "transaction_begin_time", typeDateTime), transactionRows(func(s *Session) Row {
			return Row{int64(s.seen.tx.Load()), time.Unix(0, s.seen.began.Load()).UTC()}
		})},
		"dm_tran_active_snapshot_database_transactions": {cols("session_id", typeInt, "transaction_id", typeBigInt, "elapsed_time_seconds", typeBigInt), snapshotRows},
	} {
		systemViews[name] = v
	}
}

func sessionRows(x *exec) ([]Row, error) {
	var out []Row
	for _, s := range visible(x) {
		status := "sleeping"
		if s.seen.request.Load() != 0 {
			status = "running"
		}
		level := cmp.Or(s.seen.level.Load(), int64(readCommitted))
		out = append(out, Row{int64(s.id), s.login.AppName, s.login.HostName, s.login.User, status, true, databaseID, level})
	}
	return out, nil
}

// hobt is the number of an index in sys.partitions, which has one partition for each.
func hobt(table uint32, index uint16) int64 { return int64(table)<<16 | int64(index) }

func lockRows(x *exec) ([]Row, error) {
	if err := needServerState(x); err != nil {
		return nil, err
	}
	var out []Row
	for _, l := range x.s.e.locks.Snapshot() {
		kind, entity, status := "KEY", hobt(l.Resource.Object, l.Resource.Index), "GRANT"
		if l.Resource.Key == "" {
			kind, entity = "OBJECT", int64(l.Resource.Object)
		}
		if l.Waiting {
			status = "WAIT"
		}
		out = append(out, Row{kind, databaseID, entity, l.Mode.String(), status, int64(l.Session)})
	}
	return out, nil
}

func partitionRows(x *exec) (out []Row, err error) {
	for _, o := range x.s.e.db.list() {
		if o.table == nil || !x.s.sees(o) {
			continue
		}
		o.table.latch.RLock()
		rows := int64(o.table.live)
		o.table.latch.RUnlock()
		for _, ix := range o.table.indexes {
			out = append(out, Row{int64(o.id), int64(ix.id), hobt(o.table.id, ix.id), rows})
		}
	}
	return out, nil
}

func requestRows(x *exec) ([]Row, error) {
	blockers := x.s.e.blockers()
	now := x.s.e.clock.Now()
	var out []Row
	for _, s := range visible(x) {
		if s.seen.request.Load() == 0 {
			continue
		}
		row := Row{int64(s.id), "running", databaseID, int64(0), nil, int64(0)}
		if b, waits := blockers[s.id]; waits {
			row[1], row[3], row[4] = "suspended", int64(b.Session), "LCK_M_"+b.Mode.String()
			row[5] = now.Sub(time.Unix(0, s.seen.waits.Load())).Milliseconds()
		}
		out = append(out, row)
	}
	return out, nil
}

// blockers returns, for each waiting session, a session that holds the lock, and the requested mode.
func (e *Engine) blockers() map[int]lock.Info {
	all := e.locks.Snapshot()
	found := map[int]lock.Info{}
	for _, w := range all {
		if !w.Waiting {
			continue
		}
		for _, h := range all {
			if !h.Waiting && h.Session != w.Session && h.Resource == w.Resource && !lock.Compatible(h.Mode, w.Mode) {
				found[w.Session] = lock.Info{Session: h.Session, Mode: w.Mode}
				break
			}
		}
	}
	return found
}

func transactionRows(row func(*Session) Row) func(*exec) ([]Row, error) {
	return func(x *exec) ([]Row, error) {
		if err := needServerState(x); err != nil {
			return nil, err
		}
		var out []Row
		for _, s := range visible(x) {
			if s.seen.began.Load() != 0 {
				out = append(out, row(s))
			}
		}
		return out, nil
	}
}

func snapshotRows(x *exec) ([]Row, error) {
	if err := needServerState(x); err != nil {
		return nil, err
	}
	var out []Row
	for _, s := range visible(x) {
		if at := s.seen.snapshot.Load(); at != 0 {
			out = append(out, Row{int64(s.id), int64(s.seen.tx.Load()), int64(x.s.e.clock.Now().Sub(time.Unix(0, at)).Seconds())})
		}
	}
	return out, nil
}

// serverProperty returns the values of the greeting, unless Options.Version has others.
func serverProperty(_ *compiler, args []*scalar) (*scalar, error) {
	return strict(typeSysname, []*scalar{cast(args[0], typeText, 0)}, func(x *exec, v []sqltype.Value) (sqltype.Value, error) {
		version := x.s.e.opts.Version
		switch lower(v[0].(string)) {
		case "productversion":
			return version, nil
		case "productmajorversion":
			return version[:slices.Index([]byte(version), '.')], nil
		case "engineedition":
			return "3", nil
		}
		return nil, nil
	}), nil
}

// hasPermsByName supports objects, and ALTER of a schema. It returns NULL if there is no object of that name, or no such permission.
func hasPermsByName(_ *compiler, args []*scalar) (*scalar, error) {
	for i := range args {
		args[i] = cast(args[i], typeText, 0)
	}
	return strict(typeInt, args, func(x *exec, v []sqltype.Value) (sqltype.Value, error) {
		permission := v[2].(string)
		if equalFold(v[1].(string), "SCHEMA") && permission == "ALTER" {
			_, schema := splitName(v[0].(string))
			return int64(boolInt(x.s.granted(permission, lower(schema)+".*", wholeDatabase))), nil
		}
		if !equalFold(v[1].(string), "OBJECT") || !slices.Contains([]string{"SELECT", "INSERT", "UPDATE", "DELETE", "EXECUTE"}, permission) {
			return nil, errUnsupported("HAS_PERMS_BY_NAME of " + v[1].(string) + ", " + permission)
		}
		o := findObject(x, v[0].(string))
		if o == nil {
			return nil, nil
		}
		return int64(boolInt(x.s.has(permission, o.schema, o.name))), nil
	}), nil
}
