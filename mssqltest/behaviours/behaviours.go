// Package behaviours is the contract of mssqltest: 38 things that SQL Server does, each as statements of one to three
// sessions and the answers to them. They concern what queues in tables rely on: hints, row locks, row versions, lock
// timeouts, application locks and error numbers.
//
// mssqltest is tested with them. To compare it with a server of your own, run them there:
//
//	for _, b := range behaviours.All() {
//		seen, err := behaviours.Run(ctx, db, b)
//		if err != nil {
//			return err
//		}
//		if want := b.Expected(versions); seen != want {
//			fmt.Printf("%s: seen %q, expected %q\n", b.Name, seen, want)
//		}
//	}
package behaviours

import "fmt"

// Behaviour is one thing that SQL Server does.
type Behaviour struct {
	// Name says what happens.
	Name string
	// Page is the page of Microsoft's documentation that says so, or "" if none does.
	Page string
	// Reason is what that page says, or why it follows from others.
	Reason string
	// Steps are run in their order.
	Steps []Step
	// Want is the answer where READ_COMMITTED_SNAPSHOT is off.
	Want string
	// WantVersions is the answer where it is on. Default: Want.
	WantVersions string
}

// Step is a batch of one session.
type Step struct {
	// Session is A, B or C. Each is a connection of its own.
	Session string
	// Text is the batch.
	Text string
	// Parallel runs the batch while the next steps run.
	Parallel bool
	// Until repeats the batch until this is its answer, for five seconds: the state to which it answers is made by a
	// parallel step.
	Until string
}

// Waits is the answer of a batch that waited for a lock: it ended with the lock timeout that Run sets.
const Waits = "error 1222"

// Expected returns the answer that is expected of a database with or without row versions
// (READ_COMMITTED_SNAPSHOT).
func (b Behaviour) Expected(versions bool) string {
	if versions && b.WantVersions != "" {
		return b.WantVersions
	}
	return b.Want
}

// Setup are the batches that Run runs before each behaviour: a table with four rows and one index.
func Setup() []string {
	return []string{
		`IF OBJECT_ID(N'dbo.behaviour') IS NOT NULL DROP TABLE dbo.behaviour`,
		`CREATE TABLE dbo.behaviour (
    id int NOT NULL CONSTRAINT PK_behaviour PRIMARY KEY CLUSTERED,
    k int NOT NULL,
    v int NOT NULL,
    z int NULL
)`,
		`CREATE NONCLUSTERED INDEX IX_behaviour ON dbo.behaviour (k, id)`,
		`INSERT INTO dbo.behaviour (id, k, v) VALUES (1, 1, 0), (2, 2, 0), (3, 3, 0), (4, 4, 0)`,
	}
}

// meanwhile are the steps in which B runs a batch while a transaction of A is open.
func meanwhile(inA, inB string) []Step {
	return []Step{{Session: "A", Text: "BEGIN TRANSACTION; " + inA}, {Session: "B", Text: inB}}
}

func alone(texts ...string) []Step {
	var steps []Step
	for _, text := range texts {
		steps = append(steps, Step{Session: "A", Text: text})
	}
	return steps
}

// lockResource is a call of sp_getapplock in the transaction of the session.
func lockResource(resource, mode string, timeout int) string {
	return fmt.Sprintf(`DECLARE @r int; EXEC @r = sys.sp_getapplock @Resource = N'%s', @LockMode = N'%s',
    @LockOwner = N'Transaction', @LockTimeout = %d`, resource, mode, timeout)
}

// The batches of A that leave row 2 changed, locked for an update, read and deleted, and a new row 9.
const (
	changed  = `UPDATE dbo.behaviour SET v = 1 WHERE id = 2`
	reserved = `DECLARE @id int; SELECT @id = id FROM dbo.behaviour WITH (UPDLOCK) WHERE id = 2`
	read     = `DECLARE @id int; SELECT @id = id FROM dbo.behaviour WITH (REPEATABLEREAD) WHERE id = 2`
	deleted  = `DELETE FROM dbo.behaviour WHERE id = 2`
	inserted = `INSERT INTO dbo.behaviour (id, k, v) VALUES (9, 9, 0)`
)

// The pages of the documentation.
const (
	hints     = "Table hints (Transact-SQL)"
	locking   = "Transaction locking and row versioning guide"
	timeouts  = "SET LOCK_TIMEOUT (Transact-SQL)"
	abort     = "SET XACT_ABORT (Transact-SQL)"
	applock   = "sp_getapplock (Transact-SQL)"
	deadlocks = "Deadlocks guide"
	errors0   = "Database Engine events and errors, 0 to 999"
	errors1   = "Database Engine events and errors, 1000 to 1999"
	errors2   = "Database Engine events and errors, 2000 to 2999"
	errors8   = "Database Engine events and errors, 8000 to 8999"
)

const (
	everything = "1,2,3,4"
	exceptTwo  = "1,3,4"
)

// All returns the behaviours.
func All() []Behaviour {
	var all []Behaviour
	for _, some := range [][]Behaviour{readPast(), visible(), hintRules(), waits(), values(), resources()} {
		all = append(all, some...)
	}
	return all
}

func readPast() []Behaviour {
	return []Behaviour{
		{
			Name: "a plain SELECT waits for a changed row, and with row versions reads the old one",
			Page: locking,
			Reason: "At READ COMMITTED a read takes a shared lock, which conflicts with the X lock of a change. With " +
				"READ_COMMITTED_SNAPSHOT it takes no row lock and reads the last committed version.",
			Steps: meanwhile(changed, `SELECT id FROM dbo.behaviour ORDER BY id`),
			Want:  Waits, WantVersions: everything,
		},
		{
			Name: "READPAST alone skips a changed row, and with row versions does nothing",
			Page: hints,
			Reason: "READPAST skips rows that others have locked. A read of row versions requests no locks, so there is " +
				"none to skip: users of LocalDB have reported it.",
			Steps: meanwhile(changed, `SELECT id FROM dbo.behaviour WITH (READPAST) ORDER BY id`),
			Want:  exceptTwo, WantVersions: everything,
		},
		{
			Name:   "READPAST with READCOMMITTEDLOCK skips a changed row",
			Page:   hints,
			Reason: "READCOMMITTEDLOCK reads with locks even if the database has READ_COMMITTED_SNAPSHOT on.",
			Steps:  meanwhile(changed, `SELECT id FROM dbo.behaviour WITH (READPAST, READCOMMITTEDLOCK) ORDER BY id`),
			Want:   exceptTwo,
		},
		{
			Name:   "READPAST with UPDLOCK skips a changed row",
			Page:   hints,
			Reason: "UPDLOCK requests update locks, and update locks conflict with X locks.",
			Steps:  meanwhile(changed, `SELECT id FROM dbo.behaviour WITH (UPDLOCK, READPAST, ROWLOCK) ORDER BY id`),
			Want:   exceptTwo,
		},
		{
			Name:   "READPAST with UPDLOCK skips a row that is locked for an update",
			Page:   hints,
			Reason: "Two update locks on one row conflict, so two consumers never take the same row.",
			Steps:  meanwhile(reserved, `SELECT id FROM dbo.behaviour WITH (UPDLOCK, READPAST, ROWLOCK) ORDER BY id`),
			Want:   exceptTwo,
		},
		{
			Name:   "READPAST with UPDLOCK does not skip a row that another session has read",
			Page:   locking,
			Reason: "An update lock is compatible with a shared lock.",
			Steps:  meanwhile(read, `SELECT id FROM dbo.behaviour WITH (UPDLOCK, READPAST, ROWLOCK) ORDER BY id`),
			Want:   everything,
		},
		{
			Name: "an UPDATE with READPAST waits for a row that another session has read",
			Page: locking,
			Reason: "The update lock is granted, and its conversion to X waits for the shared lock. READPAST skips only " +
				"when the row is read.",
			Steps: meanwhile(read, `UPDATE dbo.behaviour WITH (UPDLOCK, READPAST, ROWLOCK) SET v = 1`),
			Want:  Waits,
		},
		{
			Name: "a look-up with READPAST skips a row that changed in none of the columns of the index",
			Page: hints,
			Reason: "The entry of the index is not locked, because nothing in it changes; the row is, and READPAST " +
				"applies to it when the look-up reads it.",
			Steps: meanwhile(changed, `SELECT id FROM dbo.behaviour
    WITH (READPAST, READCOMMITTEDLOCK, INDEX (IX_behaviour), FORCESEEK) WHERE k > 0 AND v = 0 ORDER BY k`),
			Want: exceptTwo,
		},
		{
			Name:   "READPAST skips a row whose INSERT is not committed",
			Page:   hints,
			Reason: "A new row and its entries have X locks until the commit.",
			Steps: meanwhile(inserted, `SELECT id FROM dbo.behaviour
    WITH (READPAST, READCOMMITTEDLOCK, INDEX (IX_behaviour), FORCESEEK) WHERE k > 0 ORDER BY k`),
			Want: everything,
		},
		{
			Name:   "READPAST skips a row whose DELETE is not committed",
			Page:   hints,
			Reason: "A deleted row and its entries have X locks until the commit.",
			Steps: meanwhile(deleted, `SELECT id FROM dbo.behaviour
    WITH (READPAST, READCOMMITTEDLOCK, INDEX (IX_behaviour), FORCESEEK) WHERE k > 0 ORDER BY k`),
			Want: exceptTwo,
		},
		{
			Name:   "TOP counts the rows that READPAST leaves",
			Page:   hints,
			Reason: "READPAST skips a row when it is read, and TOP counts what the read returns.",
			Steps: meanwhile(changed,
				`SELECT TOP (2) id FROM dbo.behaviour WITH (UPDLOCK, READPAST, ROWLOCK) ORDER BY id`),
			Want: "1,3",
		},
		{
			Name:   "TOP counts the rows that a look-up with READPAST leaves",
			Page:   hints,
			Reason: "The walk along the index passes the entry, the look-up skips its row, and TOP is above both.",
			Steps: meanwhile(changed, `SELECT TOP (2) id FROM dbo.behaviour
    WITH (READPAST, READCOMMITTEDLOCK, INDEX (IX_behaviour), FORCESEEK) WHERE k > 0 AND v = 0 ORDER BY k`),
			Want: "1,3",
		},
	}
}

func visible() []Behaviour {
	return []Behaviour{
		{
			Name:   "a read that an index covers does not wait for a changed row",
			Page:   locking,
			Reason: "It locks entries of that index. An UPDATE of a column that the index does not contain locks none.",
			Steps: meanwhile(changed, `SELECT id FROM dbo.behaviour WITH (READCOMMITTEDLOCK, INDEX (IX_behaviour))
    WHERE k > 0 ORDER BY k`),
			Want: everything,
		},
		{
			Name:   "READUNCOMMITTED does not see a row whose DELETE is not committed",
			Page:   hints,
			Reason: "A dirty read takes no locks and reads changes before their commit; a deleted row is a ghost.",
			Steps:  meanwhile(deleted, `SELECT id FROM dbo.behaviour WITH (READUNCOMMITTED) ORDER BY id`),
			Want:   exceptTwo,
		},
		{
			Name:   "READCOMMITTEDLOCK waits for a key whose INSERT is not committed",
			Page:   hints,
			Reason: "The new row has an X lock, and the read of its key requests a shared one.",
			Steps:  meanwhile(inserted, `SELECT id FROM dbo.behaviour WITH (READCOMMITTEDLOCK) WHERE id = 9`),
			Want:   Waits,
		},
		{
			Name:   "a shared lock of the table waits for a changed row",
			Page:   locking,
			Reason: "A change holds an intent lock (IX) of its table, which conflicts with S.",
			Steps:  meanwhile(changed, `SELECT COUNT(*) FROM dbo.behaviour WITH (TABLOCK)`),
			Want:   Waits,
		},
		{
			Name:   "READPAST waits for a lock of the table",
			Page:   hints,
			Reason: "READPAST skips locks of rows. It does not skip locks of pages or tables.",
			Steps: meanwhile(`DECLARE @n int; SELECT @n = COUNT(*) FROM dbo.behaviour WITH (TABLOCKX)`,
				`SELECT id FROM dbo.behaviour WITH (READPAST, READCOMMITTEDLOCK) ORDER BY id`),
			Want: Waits,
		},
	}
}

func hintRules() []Behaviour {
	return []Behaviour{
		{
			Name: "READPAST under SNAPSHOT is error 650",
			Page: errors0,
			Reason: "The text of error 650 admits READ COMMITTED and REPEATABLE READ. (The page of table hints once " +
				"admitted SNAPSHOT with UPDLOCK, and was corrected.)",
			Steps: alone(`SET TRANSACTION ISOLATION LEVEL SNAPSHOT`,
				`SELECT id FROM dbo.behaviour WITH (UPDLOCK, READPAST) ORDER BY id`),
			Want: "error 650",
		},
		{
			Name:   "READPAST under SERIALIZABLE is error 650",
			Page:   errors0,
			Reason: "The text of error 650 admits READ COMMITTED and REPEATABLE READ.",
			Steps: alone(`SET TRANSACTION ISOLATION LEVEL SERIALIZABLE`,
				`SELECT id FROM dbo.behaviour WITH (READPAST) ORDER BY id`),
			Want: "error 650",
		},
		{
			Name: "ROWLOCK, READPAST and READCOMMITTEDLOCK go together",
			Reason: "The page of table hints lists ROWLOCK and READCOMMITTEDLOCK in one group, and admits one of a " +
				"group. Published queues use both.",
			Steps: alone(`SELECT id FROM dbo.behaviour WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK) ORDER BY id`),
			Want:  everything,
		},
		{
			Name:   "XLOCK, READPAST and ROWLOCK go together",
			Page:   hints,
			Reason: "XLOCK may be combined with hints of granularity.",
			Steps:  alone(`SELECT id FROM dbo.behaviour WITH (XLOCK, READPAST, ROWLOCK) ORDER BY id`),
			Want:   everything,
		},
		{
			Name:   "NOLOCK with ROWLOCK is error 1047",
			Page:   errors1,
			Reason: "Locking hints that contradict each other are refused.",
			Steps:  alone(`SELECT id FROM dbo.behaviour WITH (NOLOCK, ROWLOCK)`),
			Want:   "error 1047",
		},
		{
			Name:   "INDEX on the target of an UPDATE without FROM is error 1069",
			Page:   errors1,
			Reason: "Index hints are allowed only in a FROM or OPTION clause.",
			Steps:  alone(`UPDATE dbo.behaviour WITH (INDEX (IX_behaviour)) SET v = 1`),
			Want:   "error 1069",
		},
		{
			Name:   "a hint for an index that does not exist is error 308",
			Page:   errors0,
			Reason: "The hint is not ignored.",
			Steps:  alone(`SELECT id FROM dbo.behaviour WITH (INDEX (IX_none))`),
			Want:   "error 308",
		},
		{
			Name:   "FORCESEEK without a column to seek is error 8622",
			Page:   errors8,
			Reason: "If no plan can follow the hints, there is no plan.",
			Steps:  alone(`SELECT id FROM dbo.behaviour WITH (FORCESEEK) WHERE v = 1`),
			Want:   "error 8622",
		},
		{
			Name:   "UPDATE TOP without ORDER BY changes that many rows",
			Page:   "TOP (Transact-SQL)",
			Reason: "It does not say which ones.",
			Steps: alone(`UPDATE TOP (2) dbo.behaviour WITH (UPDLOCK, READPAST, ROWLOCK) SET v = 1`,
				`SELECT COUNT(*) FROM dbo.behaviour WHERE v = 1`),
			Want: "2",
		},
	}
}

func waits() []Behaviour {
	change := func(settings string) []Step {
		return []Step{
			{Session: "A", Text: "BEGIN TRANSACTION; " + changed},
			{Session: "B", Text: settings + "; SET LOCK_TIMEOUT 50; BEGIN TRANSACTION"},
			{Session: "B", Text: `UPDATE dbo.behaviour SET v = 2 WHERE id = 2`},
			{Session: "B", Text: `SELECT @@TRANCOUNT`},
		}
	}
	return []Behaviour{
		{
			Name:   "LOCK_TIMEOUT 0 waits for nothing: error 1222",
			Page:   timeouts,
			Reason: "0 means not to wait and to return a message as soon as a lock is met.",
			Steps: meanwhile(changed,
				`SET LOCK_TIMEOUT 0; SELECT id FROM dbo.behaviour WITH (READCOMMITTEDLOCK) WHERE id = 2`),
			Want: "error 1222",
		},
		{
			Name:   "error 1222 under XACT_ABORT ON rolls the transaction back",
			Page:   abort,
			Reason: "A run-time error rolls back the whole transaction.",
			Steps:  change("SET XACT_ABORT ON"),
			Want:   "error 1222; 0",
		},
		{
			Name:   "error 1222 under XACT_ABORT OFF leaves the transaction open",
			Page:   timeouts,
			Reason: "The statement is cancelled. The transaction is not rolled back or cancelled.",
			Steps:  change("SET XACT_ABORT OFF"),
			Want:   "error 1222; 1",
		},
		{
			Name:   "a deadlock has one victim, the session of the lower priority",
			Page:   deadlocks,
			Reason: "The session with the lower DEADLOCK_PRIORITY gets error 1205; the other goes on.",
			Steps: []Step{
				{Session: "A", Text: `SET DEADLOCK_PRIORITY NORMAL; SET LOCK_TIMEOUT 30000; BEGIN TRANSACTION;
UPDATE dbo.behaviour SET v = 1 WHERE id = 1`},
				{Session: "B", Text: `SET DEADLOCK_PRIORITY LOW; SET LOCK_TIMEOUT 30000; BEGIN TRANSACTION;
UPDATE dbo.behaviour SET v = 1 WHERE id = 2`},
				{Session: "B", Text: `UPDATE dbo.behaviour SET v = 2 WHERE id = 1`, Parallel: true},
				{Session: "A", Text: `UPDATE dbo.behaviour SET v = 2 WHERE id = 2`},
			},
			Want: "error 1205",
		},
		{
			Name:   "SET inside sp_executesql ends with it",
			Page:   "SET statements (Transact-SQL)",
			Reason: "A SET in a stored procedure or a dynamic batch is undone when control returns.",
			Steps: alone(`SET LOCK_TIMEOUT 123`, `EXEC sp_executesql N'SET LOCK_TIMEOUT 50'`,
				`SELECT @@LOCK_TIMEOUT`),
			Want: "123",
		},
	}
}

func values() []Behaviour {
	return []Behaviour{
		{
			Name:   "a primary key that exists is error 2627",
			Page:   errors2,
			Reason: "A violated constraint is 2627; a violated unique index is 2601.",
			Steps:  alone(`INSERT INTO dbo.behaviour (id, k, v) VALUES (1, 1, 1)`),
			Want:   "error 2627",
		},
		{
			Name:   "trailing zeros of binary values do not count when they are compared",
			Reason: "Binary values of different lengths are compared as if the shorter one were filled with zeros.",
			Steps:  alone(`SELECT CASE WHEN 0x01 = 0x0100 THEN 1 ELSE 0 END`),
			Want:   "1",
		},
		{
			Name:   "a division by zero in a row is error 8134",
			Page:   "SET ARITHABORT (Transact-SQL)",
			Reason: "With ANSI_WARNINGS or ARITHABORT on it is an error, not NULL.",
			Steps:  alone(`SELECT 1 / v FROM dbo.behaviour`),
			Want:   "error 8134",
		},
	}
}

func resources() []Behaviour {
	asks := func(resource, mode string, timeout int) string {
		return "BEGIN TRANSACTION; " + lockResource(resource, mode, timeout) + "; SELECT @r"
	}
	return []Behaviour{
		{
			Name:   "an exclusive application lock waits for a shared one, and its timeout is -1",
			Page:   applock,
			Reason: "Application locks have the modes of row locks; -1 means that the request timed out.",
			Steps:  meanwhile(lockResource("queue", "Shared", 0), asks("queue", "Exclusive", 25)),
			Want:   "-1",
		},
		{
			Name:   "names of application locks distinguish case",
			Page:   applock,
			Reason: "They are compared byte by byte, whatever the collation of the database.",
			Steps:  meanwhile(lockResource("queue", "Exclusive", 0), asks("QUEUE", "Exclusive", 25)),
			Want:   "0",
		},
		{
			Name:   "an application lock of a transaction needs one: -999",
			Page:   applock,
			Reason: "-999 means an error of a parameter or of the call.",
			Steps:  alone(lockResource("queue", "Shared", 0) + "; SELECT @r"),
			Want:   "-999",
		},
		{
			Name: "a request for an application lock waits behind those that wait",
			Page: locking,
			Reason: "Requests are granted in their order: a shared one does not overtake an exclusive one that waits " +
				"for another shared one. (1 means granted after a wait.)",
			Steps: []Step{
				{Session: "A", Text: "BEGIN TRANSACTION; " + lockResource("queue", "Shared", 0)},
				{Session: "B", Text: asks("queue", "Exclusive", 30000), Parallel: true},
				{Session: "C", Text: asks("queue", "Shared", 0) + "; ROLLBACK", Until: "-1"},
				{Session: "A", Text: "ROLLBACK"},
			},
			Want: "1; -1",
		},
	}
}
