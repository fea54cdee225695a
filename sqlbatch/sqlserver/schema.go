package sqlserver

import (
	"cmp"
	"slices"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// Numbers of the errors that statements throw: the first two are those of migrations.
const (
	errLockNotGranted = 51871
	errNoSchema       = 51872
	errGate           = 51873 // thrown by an enqueue of an ordered queue
)

// Fresh: nothing is required.
func (dialect) Fresh(sqlbatch.Names) sqlbatch.Fresh { return sqlbatch.Fresh{} }

// Begin takes the application lock that every migration of the database takes; it is released with the transaction.
// sp_getapplock reports a refusal as a negative result, hence the THROW.
func (dialect) Begin() []string {
	return []string{`SET XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET ROWCOUNT 0;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
BEGIN TRANSACTION;
`, `DECLARE @granted int;
EXEC @granted = sys.sp_getapplock @Resource = N'chanq migration', @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 60000;
IF @granted < 0
BEGIN
    THROW 51871, N'chanq: another migration of this database has not ended within a minute', 1;
END;
`}
}

func (dialect) Commit() string { return "COMMIT TRANSACTION;\n" }

func (dialect) Text(n sqlbatch.Names, text string) string {
	return build.Text(n, text, build.TextWords{
		Table: func(name string) string {
			return build.Quote("[", cmp.Or(n.Schema, "dbo"), "]") + "." + build.Quote("[", name, "]")
		},
		Create: func(t string) string {
			return "IF OBJECT_ID(" + unicodeString(t) + ", N'U') IS NULL CREATE TABLE " + t
		},
		Now: `DATEDIFF_BIG(millisecond, '19700101', SYSUTCDATETIME())`, Parameter: "@p",
		Text: "nvarchar(400)", Bytes: "varbinary(max)",
	})
}

// Migrations can be run again: each statement first looks for what it creates. They run as text without parameters, so that
// a DBA can run them by hand unchanged.
func (dialect) Migrations(n sqlbatch.Names) []sqlbatch.Migration {
	r := newRenderer(n)
	m := sqlbatch.Migration{Number: sqlbatch.Version, Registry: 1}
	before, index, after := []string(nil), []string{dueIndexText}, []string(nil)
	if r.ordered {
		before, index, after = []string{slotsTableText, slotRowsText, numbersText, firstNumberText}, []string{seqIndexText, slotIndexText}, []string{deadLineIndexText}
	}
	for _, template := range slices.Concat(
		[]string{schemaText + queuesTableText, consumersTableText}, before, []string{liveTableText}, index, []string{keyIndexText,
			deadTableText, addColumnsText, deadEndedIndexText, deadCauseIndexText, deadKeyIndexText, deadNewIndexText}, after, []string{doneTableText, doneIDIndexText, samplesTableText, addHeardText, convertText, firstRecordText, raiseText},
	) {
		m.Statements = append(m.Statements, r.Replace(template))
	}
	m.Statements = append(m.Statements, dialect{}.Text(n, build.LogTable))
	return []sqlbatch.Migration{m}
}

// schemaText throws an explicit error if something is missing. Creating schemas, and deciding who owns them, is up to the
// DBA.
const schemaText = `IF SCHEMA_ID({'schema'}) IS NULL
BEGIN
    THROW 51872, {'no schema'}, 1;
END;
`

// convertText keeps messages of version 1 from being dead-lettered for expired leases that did not count before. Their table keeps two columns
// that nothing reads any more.
const convertText = `IF EXISTS (SELECT 1 FROM {queues} AS s WHERE s.name = {name} AND s.version < 2)
    UPDATE {live} SET attempts = attempts - (lapses - {kept lapses}), lapses = {kept lapses} WHERE lapses > {kept lapses};
`

// raiseText lets programs of version 1 refuse the queue.
const raiseText = `IF EXISTS (SELECT 1 FROM {queues} AS s WHERE s.name = {name} AND s.version < {version})
    UPDATE {queues} SET version = {version}, min_version = {least} WHERE name = {name};
`

// firstRecordText lets Open find a queue that was created by hand. See recordText.
const firstRecordText = `INSERT INTO {queues} WITH (ROWLOCK) (name, version, min_version, paused, created_at, kind, slots, shard, shards, shard_set, {policy columns})
SELECT {name}, {version}, {least}, 0, SYSUTCDATETIME(), {kind and slots}, {shard values}, {policy values}
WHERE NOT EXISTS (SELECT 1 FROM {queues} AS s WITH (UPDLOCK, SERIALIZABLE, ROWLOCK) WHERE s.name = {name});
`

const queuesTableText = `IF OBJECT_ID({'queues'}, N'U') IS NULL
    CREATE TABLE {queues} (
        name varchar(40) NOT NULL,
        version int NOT NULL,
        min_version int NOT NULL CONSTRAINT {df min version} DEFAULT (1),
        features bigint NOT NULL CONSTRAINT {df features} DEFAULT (0),
        kind smallint NOT NULL,
        slots smallint NOT NULL,
        {policy types},
        paused bit NOT NULL,
        paused_at datetime2(3) NULL,
        paused_by nvarchar(400) NULL,
        pause_reason nvarchar(400) NULL,
        shard smallint NOT NULL,
        shards smallint NOT NULL,
        shard_set varchar(32) NOT NULL,
        redriven bigint NOT NULL CONSTRAINT {df redriven} DEFAULT (0),
        created_at datetime2(3) NOT NULL,
        CONSTRAINT {queues pk} PRIMARY KEY CLUSTERED (name) WITH (ALLOW_PAGE_LOCKS = OFF)
    );
`

// consumersTableText: the consumers of all queues of the schema.
const consumersTableText = `IF OBJECT_ID({'consumers'}, N'U') IS NULL
    CREATE TABLE {consumers} (
        id binary(16) NOT NULL,
        queue varchar(40) NOT NULL,
        name nvarchar(200) NOT NULL,
        host nvarchar(200) NOT NULL,
        process int NOT NULL,
        since datetime2(3) NOT NULL,
        until datetime2(3) NOT NULL,
        heard_at datetime2(3) NULL,
        CONSTRAINT {consumers pk} PRIMARY KEY CLUSTERED (id) WITH (ALLOW_PAGE_LOCKS = OFF)
    );
`

// addHeardText is for a table of version 2. Its programs leave the column NULL.
const addHeardText = `IF COL_LENGTH({'consumers'}, N'heard_at') IS NULL
    ALTER TABLE {consumers} ADD heard_at datetime2(3) NULL;
`

// liveTableText: ids are UUIDv7, so the clustered key appends. No foreign key, trigger, indexed view or further index:
// OUTPUT to the client forbids some, and READPAST might block on the others. The CHECKs refuse rows that no claim would
// ever see, and rows that would make one fail: sums that are too large, and more bytes than a consumer could read. They run
// when their columns are written; those of the sizes and of the type only by a send. In every code page of a database the
// first half is ASCII: other bytes show as another character of nvarchar.
//
// Every column except the body has a default, so that any program's INSERT of a body is a message. The default of the id is
// a UUIDv7: 48 bits of milliseconds, the version with 12 random bits, and the last 64 bits of a random UUID, whose variant
// is the same.
//
// due_at is a message's place, and lease_until the end of its lease, which is in the past if no consumer holds it. The
// columns that a claim or an extension changes have a fixed width and are in no index, so it writes only the row, in place.
//
// STATISTICS_NORECOMPUTE: every plan is pinned by hints, and a table that alternates between empty and full would only
// recompile them. ALLOW_PAGE_LOCKS = OFF: READPAST skips only row locks, and neither a redrive (OUTPUT INTO accepts no
// hint) nor an ad-hoc statement can then take a page lock; the price is that ALTER INDEX … REORGANIZE refuses.
// LOCK_ESCALATION = DISABLE: READPAST cannot skip a table lock either.
const liveTableText = `IF OBJECT_ID({'live'}, N'U') IS NULL
BEGIN
    CREATE TABLE {live} (
        id binary(16) NOT NULL CONSTRAINT {df id} DEFAULT ({new id}),
        priority smallint NOT NULL CONSTRAINT {df priority} DEFAULT (0),
        due_at datetime2(3) NOT NULL CONSTRAINT {df due_at} DEFAULT (SYSUTCDATETIME()),
        lease_until datetime2(3) NOT NULL CONSTRAINT {df lease_until} DEFAULT ('19700101'),
        enqueued_at datetime2(3) NOT NULL CONSTRAINT {df enqueued_at} DEFAULT (SYSUTCDATETIME()),
        expires_at datetime2(3) NULL,
        fence bigint NOT NULL CONSTRAINT {df fence} DEFAULT (0),
        attempts int NOT NULL CONSTRAINT {df attempts} DEFAULT (0),
        lapses smallint NOT NULL CONSTRAINT {df lapses} DEFAULT (0),{live order}
        dedup_key varbinary(200) NULL,
        type varbinary(100) NULL,
        leased_by binary(16) NULL,
        headers varbinary(max) NULL,
        body varbinary(max) NOT NULL,
        last_error nvarchar(2000) NULL,
        history nvarchar({most history}) NULL,
        CONSTRAINT {pk} PRIMARY KEY CLUSTERED (id) WITH (STATISTICS_NORECOMPUTE = ON, ALLOW_PAGE_LOCKS = OFF),
        CONSTRAINT {ck priority} CHECK (priority >= -1 AND priority <= 2),
        CONSTRAINT {ck values} CHECK (due_at >= '19700101' AND lease_until >= '19700101' AND enqueued_at >= '19700101' AND expires_at >= '19700101'
            AND lapses >= 0 AND attempts >= lapses + CASE WHEN leased_by IS NULL THEN 0 ELSE 1 END AND attempts <= {last attempt} AND fence >= 0 AND fence <= CONVERT(bigint, {last fence})),
        CONSTRAINT {ck sizes} CHECK (DATALENGTH(body) <= {most body} AND DATALENGTH(headers) <= {most headers} AND DATALENGTH(dedup_key) > 0 AND DATALENGTH([type]) > 0
            AND CONVERT(nvarchar(100), CONVERT(varchar(100), [type])) COLLATE Latin1_General_BIN2 NOT LIKE N'%[^ -~]%'){order checks}
    );
    ALTER TABLE {live} SET (LOCK_ESCALATION = DISABLE);
END;
`

const newID = `CONVERT(binary(6), DATEDIFF_BIG(millisecond, '19700101', SYSUTCDATETIME()))
            + CONVERT(binary(2), 28672 + CONVERT(int, SUBSTRING(CONVERT(binary(16), NEWID()), 1, 2)) % 4096)
            + SUBSTRING(CONVERT(binary(16), NEWID()), 9, 8)`

// dueIndexText is what claims walk: due time, delay and retry are all due_at. Columns that a claim changes must not be in
// it, neither as a key, nor in a filter, nor as an included column: a key that moves leaves a ghost at its old place, where
// the next claim begins. id is the row's locator anyway and costs nothing.
const dueIndexText = `IF INDEXPROPERTY(OBJECT_ID({'live'}, N'U'), {'due'}, 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX {due} ON {live} (priority, due_at, id)
        WITH (STATISTICS_NORECOMPUTE = ON, ALLOW_PAGE_LOCKS = OFF);
`

// keyIndexText has only the messages with a key; others cost nothing.
//
// A filtered index needs QUOTED_IDENTIFIER, which is off in sqlcmd and on in the driver.
const keyIndexText = `SET QUOTED_IDENTIFIER ON;
IF INDEXPROPERTY(OBJECT_ID({'live'}, N'U'), {'key'}, 'IndexID') IS NULL
    CREATE UNIQUE NONCLUSTERED INDEX {key} ON {live} (dedup_key) WHERE dedup_key IS NOT NULL
        WITH (STATISTICS_NORECOMPUTE = ON, ALLOW_PAGE_LOCKS = OFF);
`

// The dead-letter and the done table are targets of OUTPUT INTO: plain columns, no checks (error 333) and no triggers
// (331). A table lock, to which many row locks might escalate, would block dead-letter and archive statements.

// noticedColumn is when a handler of dead messages has noticed the death (chanqjobs.Deaths): 1970 is not yet, and NULL a death before there
// was this column, which is never noticed.
const noticedColumn = `noticed_at datetime2(3) NULL CONSTRAINT {df noticed_at} DEFAULT ('19700101')`

// The columns that only one of the two tables has. fingerprint is an integer: eight bytes, which compare fast.
const (
	deadOwn = `        cause smallint NOT NULL,
        fingerprint bigint NULL,
        ` + noticedColumn + `,
`
	doneOwn = `        outcome smallint NOT NULL,
`
)

func endedWith(own string) string { return strings.Replace(endedColumns, "{own}", own, 1) }

// endedColumns are the columns of both.
const endedColumns = `        id binary(16) NOT NULL,
        priority smallint NOT NULL,
        fence bigint NOT NULL,
        attempts int NOT NULL,
        enqueued_at datetime2(3) NOT NULL,
        ended_at datetime2(3) NOT NULL,
{own}{ended order}        dedup_key varbinary(200) NULL,
        type varbinary(100) NULL,
        headers varbinary(max) NULL,
        body varbinary(max) NOT NULL,
        last_error nvarchar(2000) NULL,
        history nvarchar({most history}) NULL,
`

var deadTableText = `IF OBJECT_ID({'dead'}, N'U') IS NULL
BEGIN
    CREATE TABLE {dead} (
` + endedWith(deadOwn) + `        CONSTRAINT {dead pk} PRIMARY KEY CLUSTERED (id)
    );
    ALTER TABLE {dead} SET (LOCK_ESCALATION = DISABLE);
END;
`

// addColumnsText changes only the catalog of tables of version 2: the rows that exist stay NULL, as old. The default is for new ones,
// whichever program inserts them. WITH VALUES would rewrite all rows.
const addColumnsText = `IF COL_LENGTH({'dead'}, N'noticed_at') IS NULL
BEGIN
    ALTER TABLE {dead} ADD ` + noticedColumn + `, history nvarchar({most history}) NULL;
    ALTER TABLE {live} ADD history nvarchar({most history}) NULL;
    ALTER TABLE {done} ADD history nvarchar({most history}) NULL;
END;
`

// deadEndedIndexText: peeks and redrives use the order of death.
const deadEndedIndexText = `IF INDEXPROPERTY(OBJECT_ID({'dead'}, N'U'), {'dead ended'}, 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX {dead ended} ON {dead} (ended_at, id);
`

// deadCauseIndexText has the groups of dead messages, each with its first and its last.
const deadCauseIndexText = `IF INDEXPROPERTY(OBJECT_ID({'dead'}, N'U'), {'dead cause'}, 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX {dead cause} ON {dead} (cause, fingerprint, ended_at, id);
`

// deadKeyIndexText: a redrive looks for other dead messages with the same key.
const deadKeyIndexText = `SET QUOTED_IDENTIFIER ON;
IF INDEXPROPERTY(OBJECT_ID({'dead'}, N'U'), {'dead key'}, 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX {dead key} ON {dead} (dedup_key, id) WHERE dedup_key IS NOT NULL;
`

// deadNewIndexText has the deaths that were not noticed yet, in their order. The column of the filter is in the key, so that a read needs no
// lookup of rows.
const deadNewIndexText = `SET QUOTED_IDENTIFIER ON;
IF INDEXPROPERTY(OBJECT_ID({'dead'}, N'U'), {'dead new'}, 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX {dead new} ON {dead} (noticed_at, ended_at, id) WHERE noticed_at = '19700101';
`

// doneTableText is clustered by the time of the end, so that archiving appends and trimming deletes a range of adjacent
// rows.
var doneTableText = `IF OBJECT_ID({'done'}, N'U') IS NULL
BEGIN
    CREATE TABLE {done} (
` + endedWith(doneOwn) + `        CONSTRAINT {done pk} PRIMARY KEY CLUSTERED (ended_at, id)
    );
    ALTER TABLE {done} SET (LOCK_ESCALATION = DISABLE);
END;
`

// doneIDIndexText finds one message by its id, without a scan of all archived messages.
const doneIDIndexText = `IF INDEXPROPERTY(OBJECT_ID({'done'}, N'U'), {'done id'}, 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX {done id} ON {done} (id);
`
