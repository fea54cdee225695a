package main

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

// engine is a database that a storm runs on.
type engine struct {
	testdb.Engine
	size string // bytes of the queue's tables with their indexes, and dead rows that are not reclaimed
	drop string // what is left of the triggers

	lockOne string // locks any leased row and returns the 16 bytes of its id
	lockAll string // or begins a transaction that blocks every other writer
	// lockTable blocks every writer for at most hiccup, as CREATE INDEX does.
	lockTable string
	triggers  []string // of guilty messages; nil: this engine has none
	// lockFor and freezeFor are how long a lock or a freeze lasts at most: two leases, or less if it stops every
	// process.
	lockFor, freezeFor time.Duration
	late               time.Duration // for which a transaction of a worker is open at most
}

// long is two leases of a queue that is not ordered.
const long = 10 * time.Second

// hiccup is the longest time for which all processes have to wait.
const hiccup = 500 * time.Millisecond

// traits are of the engines of a dialect.
var traits = map[string]engine{
	"sqlite": {
		size: `SELECT page_count * page_size, freelist_count FROM pragma_page_count, pragma_page_size, pragma_freelist_count`,
		// A connection that freezes in a transaction stops every process in the same way.
		lockAll: `BEGIN IMMEDIATE`, lockFor: hiccup, freezeFor: hiccup, late: 5 * time.Millisecond, triggers: sqliteTriggers,
	},
	"postgres": {
		size: `SELECT pg_total_relation_size('chanq_soak'), (SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'chanq_soak')`,
		drop: `DROP FUNCTION IF EXISTS refusing, hurrying`,
		lockOne: `SELECT uuid_send(id) FROM chanq_soak
			WHERE id = (SELECT id FROM chanq_soak WHERE leased_by IS NOT NULL ORDER BY random() LIMIT 1) AND leased_by IS NOT NULL
			FOR UPDATE SKIP LOCKED`,
		lockFor: long, freezeFor: long, late: 2 * time.Second,
		lockTable: `LOCK TABLE chanq_soak IN SHARE MODE`, triggers: postgresTriggers,
	},
	"sqlserver": {
		size: `SELECT SUM(reserved_page_count) * 8192, 0 FROM sys.dm_db_partition_stats WHERE object_id = OBJECT_ID(N'dbo.chanq_soak')`,
		lockOne: `SET NOCOUNT ON; DECLARE @id binary(16) = (SELECT TOP (1) id FROM dbo.chanq_soak WITH (NOLOCK) WHERE leased_by IS NOT NULL ORDER BY NEWID());
			SELECT id FROM dbo.chanq_soak WITH (UPDLOCK, ROWLOCK, READPAST) WHERE id = @id AND leased_by IS NOT NULL`,
		lockFor: long, freezeFor: long, late: 2 * time.Second,
	},
}

// engines has those that processes share, by name.
var engines = func() map[string]engine {
	all := map[string]engine{}
	for _, e := range testdb.Engines() {
		if e.Shared {
			t := traits[e.Dialect.Name()]
			t.Engine = e
			if e.Needs == pgtest.CitusVariable {
				t.lockTable, t.triggers = "", nil
			}
			all[e.Name] = t
		}
	}
	return all
}()

func engineNames() string { return strings.Join(slices.Sorted(maps.Keys(engines)), ", ") }
