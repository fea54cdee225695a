package mssqltest

import (
	"encoding/hex"

	"github.com/chanq/chanq/mssqltest/internal/lock"
)

// Lock is a lock that a session holds or waits for.
type Lock struct {
	Session int
	// Table and Index are names such as "dbo.orders" and "PK_orders". A lock of a table has no Index. A heap has the index "".
	Table, Index string
	// Key distinguishes rows and entries of one index, in hexadecimal. It is empty for a lock of a table.
	Key string
	// App is the resource of sp_getapplock. Such a lock has no Table.
	App string
	// Mode is the name of the mode, as sys.dm_tran_locks shows it: "S", "U", "X", "IX", "RangeS-U" and so on.
	Mode string
	// Waiting is true for a request that has not been granted.
	Waiting bool
}

// Locks lists the locks that sessions hold or wait for.
func (s *Server) Locks() []Lock {
	var list []Lock
	for _, i := range s.engine.Locks() {
		list = append(list, s.lock(i))
	}
	return list
}

func (s *Server) lock(i lock.Info) Lock {
	l := Lock{Session: i.Session, Key: hex.EncodeToString([]byte(i.Resource.Key)), App: i.Resource.App, Mode: i.Mode.String(), Waiting: i.Waiting}
	l.Table, l.Index = s.engine.Names(i.Resource)
	return l
}

// Escalations counts the escalations of locks since the start.
func (s *Server) Escalations() int { return s.engine.Escalations() }

// QueryStats lists the texts that have been run and the work that they did since the last ResetQueryStats, sorted by
// text.
func (s *Server) QueryStats() []QueryStats { return s.engine.QueryStats() }

// ResetQueryStats sets the counts to zero. The texts stay in the list.
func (s *Server) ResetQueryStats() { s.engine.ResetQueryStats() }

// Waiting lists the sessions that are in WAITFOR.
func (s *Server) Waiting() []int { return s.engine.Waiting() }

// CleanGhosts removes what Options.KeepGhosts has kept.
func (s *Server) CleanGhosts() { s.engine.CleanGhosts() }

// Compile compiles a text against the tables of the server and runs nothing of it. Unlike a run, it reaches both
// branches of each IF, the bodies of loops, and CATCH. declaration declares the parameters, as for sp_executesql.
//
// It returns the first error for a name, a type, or a list of the wrong length, and for a construct that is not
// supported. It does not check statements that define objects, and names inside strings.
func (s *Server) Compile(text, declaration string) error { return s.engine.Compile(text, declaration) }
