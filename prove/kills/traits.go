package kills

import (
	"database/sql"
	"maps"
	"slices"
	"time"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// engine is a database that a trial runs on.
type engine struct {
	testdb.Engine
	file bool
	size string // bytes of the queue's tables with their indexes, and dead rows that are not reclaimed
	drop []string

	lockOne string // locks any leased row and returns the 16 bytes of its id
	lockAll string // or begins a transaction that blocks every other writer
	// lockTable blocks every writer for at most hiccup, as CREATE INDEX does.
	lockTable string
	triggers  []string // of guilty messages; nil: this engine has none
	// lockFor and freezeFor are how long a lock or a freeze lasts at most: two leases, or less if it stops every process.
	lockFor, freezeFor time.Duration
}

// hiccup is the longest time for which all processes have to wait.
const hiccup = 500 * time.Millisecond

// lockLease locks any leased row on PostgreSQL and Citus.
const lockLease = `SELECT uuid_send(id) FROM chanq_soak
	WHERE id = (SELECT id FROM chanq_soak WHERE leased_by IS NOT NULL ORDER BY random() LIMIT 1) AND leased_by IS NOT NULL
	FOR UPDATE SKIP LOCKED`

// citus is Citus through a node.
func citus(e testdb.Engine) engine {
	return engine{
		Engine:  e,
		size:    `SELECT citus_total_relation_size('chanq_soak'), 0`,
		lockOne: lockLease, lockFor: 2 * leaseFor, freezeFor: 2 * leaseFor,
	}
}

var engines = map[string]engine{
	"sqlite": {
		Engine: testdb.SQLite, file: true,
		size: `SELECT page_count * page_size, freelist_count FROM pragma_page_count, pragma_page_size, pragma_freelist_count`,
		// A connection that freezes in a transaction stops every process in the same way.
		lockAll: `BEGIN IMMEDIATE`, lockFor: hiccup, freezeFor: hiccup, triggers: sqliteTriggers,
	},
	"postgres": {
		Engine:  testdb.Postgres,
		size:    `SELECT pg_total_relation_size('chanq_soak'), (SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'chanq_soak')`,
		drop:    []string{`DROP TABLE IF EXISTS chanq_soak, chanq_soak__dead, chanq_soak__done`, `DROP FUNCTION IF EXISTS refusing, hurrying`, `DELETE FROM chanq__queues WHERE name = 'soak'`},
		lockOne: lockLease, lockFor: 2 * leaseFor, freezeFor: 2 * leaseFor,
		lockTable: `LOCK TABLE chanq_soak IN SHARE MODE`, triggers: postgresTriggers,
	},
	"citus":           citus(testdb.Citus),
	"citus-elsewhere": citus(testdb.CitusElsewhere),
	"citus-holder":    citus(testdb.CitusHolder),
	"sqlserver": {
		Engine: testdb.SQLServer,
		size:   `SELECT SUM(reserved_page_count) * 8192, 0 FROM sys.dm_db_partition_stats WHERE object_id = OBJECT_ID(N'dbo.chanq_soak')`,
		drop:   []string{`DROP TABLE IF EXISTS dbo.chanq_soak, dbo.chanq_soak__dead, dbo.chanq_soak__done`, `DELETE FROM dbo.chanq__queues WHERE name = 'soak'`},
		lockOne: `SET NOCOUNT ON; DECLARE @id binary(16) = (SELECT TOP (1) id FROM dbo.chanq_soak WITH (NOLOCK) WHERE leased_by IS NOT NULL ORDER BY NEWID());
			SELECT id FROM dbo.chanq_soak WITH (UPDLOCK, ROWLOCK, READPAST) WHERE id = @id AND leased_by IS NOT NULL`,
		lockFor: 2 * leaseFor, freezeFor: 2 * leaseFor,
	},
}

func engineNames() []string { return slices.Sorted(maps.Keys(engines)) }

// open opens the database, with faults if choose is not nil.
func (e engine) open(address string, choose func(faultdb.Op) faultdb.Fault) (*sql.DB, error) {
	inner, err := e.Connect(address)
	if err != nil {
		return nil, err
	}
	if choose == nil {
		return sql.OpenDB(inner), nil
	}
	faults := faultdb.New(inner)
	faults.Inject(choose)
	return sql.OpenDB(faults), nil
}
