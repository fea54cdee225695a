// Package guarantees is the suite that every engine passes: one test for each guarantee of chanq, and for each behaviour that its
// documentation promises. It drives the public API against a real database through faultdb, which cuts, fails and holds selected
// statements.
//
// A test states what holds. G05_… tests guarantee 5 of docs/guarantees.md; a test without a number tests another documented behaviour. A
// file is named for its subject, with the number of the guarantee that the subject belongs to: g05_sends_test.go. Its other tests may
// belong to other guarantees: search for the number in quotes, as in "G05_.
package guarantees

import (
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// run runs the suite.
func run(t *testing.T, e testdb.Engine) {
	e.Require(t)
	t.Parallel()
	for _, suite := range [][]test{
		delivery, leasing, cancelling, settling, stopping, draining, handleBatches, sending, dedupKeys, onDuplicate, transacting, inTx, queueSend, plainOrder, catchUp, buffers, reading, piping,
		admin, adminSelections, queueEmpty, stopWhenIdle, adminWhileUsed, runNow, rejectedDatabases, outages, hangingDrivers, hangingStatements, failingMessages, blockedPipes, sessions, userFunctions, hooks, middleware, wrappedDrivers, codecs, contexts, processes, claiming, expiredLeases, crashes, messageTTL, consumerRecords, keptLeases, queueDrop, parallelBatches, largeClaims, waking, wakingStatements, wakingSlots,
		queueKinds, queueSpecs, ordered, orderedReading, orderedReads, orderedConsumers, orderedSlots, orderedLostLeases, orderedBlocked, orderedLocks, foreign, viewAndProcedure, packageTables,
	} {
		for _, c := range suite {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				if why := onRealClocks[c.name]; why != "" && e.Bubble {
					outside, ok := outsideBubbles[e.Name]
					if testing.Short() || !ok {
						t.Skipf("SKIPPED on %s: %s; runs with %s=long", e.Name, why, testdb.Tier)
					}
					c.run(&world{testdb.New(t, outside)})
					return
				}
				if e.Name == testdb.Emulator.Name && clientSide[c.name] {
					testdb.Long(t)
				}
				if subjects, has := differs[e.Name]; has && !subjects[c.name] {
					testdb.Soak(t)
				}
				if !e.Bubble && (over20s[c.name] || counted[c.name] || isVariant(c.name)) {
					testdb.Soak(t)
				}
				testdb.Run(t, e, func(w *testdb.World) { c.run(&world{w}) })
			})
		}
	}
}

// onRealClocks are the tests that cannot run in a bubble, with the reason.
var onRealClocks = map[string]string{
	"ManyProcessesMayMigrateSimultaneously":               kills,
	"G01_OpenAndMigrateRefuseADatabaseThatMayLoseCommits": "SQLite in memory has no durability to refuse",
	"G12_HungClaimPipeAndTrimLoseNoLease":                 "a statement that hangs in a *sql.Tx holds a mutex of database/sql, and a bubble does not wait for mutexes",
}

// outsideBubbles are the engines for those tests: the same databases with a file or over a socket.
var outsideBubbles = map[string]testdb.Engine{
	testdb.Memory.Name:           testdb.SQLite,
	testdb.SQLiteFile.Name:       testdb.SQLite,
	testdb.EmulatorVersions.Name: testdb.EmulatorSocketVersions,
}

// over20s are the tests that wait for more than 20 s on the real clock of an engine, or of all engines together. In bubbles they run by
// default, on real clocks in the soak tier. Tests that wait for a lock of the server are not in the list.
var over20s = map[string]bool{
	"ACommitThatHangsReturnsWhenTheContextOfItsLeaseIsCancelled": true,
	"AHookThatBlocksDelaysNoExtensionAndNoShutdown":              true,
	"APausedOrderedQueueWithARetryCostsAsMuchAsAnIdleOne":        true,
	"EveryCallThatTakesAContextReturnsWhenItEnds":                true,
	"G06_AHandlerThatNeverReturnsLosesItsLeaseAndIsReported":     true,
	"G06_HandleAndPipeReturnThoughAHookOrTheDriverHangs":         true,
	"G06_TheStopIsBoundedThoughTheDatabaseIsAway":                true,
	"G07_ADeadMessageSaysHowOftenItWasTried":                     true,
	"G07_ClaimsWhoseAnswersAreLostAreNoFailedAttempts":           true,
	"G07_AMessageWhoseHandlersHangIsDeadLetteredAfterMaxCrashes": true,
	"G10_ARedriveAtAnyMomentIsNotOvertaken":                      true,
	"G10_ExpiredLeasesAreFoundAlthoughRescansTakeLong":           true,
	"G12_ALockedRowOfAnotherTableThanTheMessagesLosesNoLease":    true,
	"G12_APollThatHangsLosesNoLease":                             true,
	"G12_AMessageThatMakesClaimsHangDelaysItselfOnly":            true,
	"G12_ARecurringTaskThatHangsLosesNoLease":                    true,
	"G12_AStatementOfClaimsThatHangsLosesNoLease":                true,
	"G12_AnExtendThatHangsLosesNoLease":                          true,
	"G12_AnExtensionThatHangsLosesNoLease":                       true,
	"G12_MessagesOvertakeOneWhoseContentsDoNotArrive":            true,
	"MaxExtendCountsFromWhenAReaderTakesTheMessage":              true,
	"NoLeaseInTheBufferExpiresDuringALongJob":                    true,
	"ReceiveReturnsWithItsContextWhereTheBacklogIsFull":          true,
	"StopWhenIdleFindsMessagesBeforeTheHead":                     true,
	"TheHistoryHasHowLongMessagesHadBeenDue":                     true,
}

// counted are tests that count who reads and who does not after what happens in this process. On a real clock a read that was under way
// when the test began to count may be counted, so there they are in the soak tier as well.
var counted = map[string]bool{
	"ANotificationWakesTheOwnerOfTheSlotAndNoOtherConsumer": true,
}

// differs are the tests that the long tier runs on two engines whose statements another engine runs in all tests. In the other
// ones SQLite finds no lock of another connection in its file, and on the emulator no statement finds a row that another transaction has
// changed or locked: a reader of row versions then reads what a reader under locks does. The soak tier runs all.
var differs = map[string]map[string]bool{
	testdb.SQLiteFile.Name:       namesOf(waking, wakingStatements, wakingSlots), // by reading the file again and again
	testdb.EmulatorVersions.Name: besideTransactions,
}

func namesOf(suites ...[]test) map[string]bool {
	names := map[string]bool{}
	for _, c := range slices.Concat(suites...) {
		names[c.name] = true
	}
	return names
}

// besideTransactions are the tests in which statements find rows that another transaction has changed or locked.
var besideTransactions = map[string]bool{
	"ACommitThatHangsReturnsWhenTheContextOfItsLeaseIsCancelled":                           true,
	"AConsumerThatSkippedALockedRowPollsAgainSoon":                                         true,
	"AConsumerUsesThreeConnectionsAtMost":                                                  true,
	"AFlushWaitsForALockedSettleAndAShutdownThatTimesOutCountsIt":                          true,
	"AMessageThatASendTxKeepsIsNotClaimedBeforeItsCommit":                                  true,
	"APausedQueueIsPausedWhileItsRowIsLocked":                                              true,
	"ARedriveContinuesAfterAStepWhoseKeysWereTaken":                                        true,
	"ARedriveLeavesAMessageDeadWhoseKeyAnotherTransactionTakes":                            true,
	"ATransactionStaysUsableThoughTheTimeToDrainIsOver":                                    true,
	"G05_BatchesAreStoredOnceAndInOrderWhateverHangs":                                      true,
	"G06_AfterARollbackALeaseOfAckTxIsSettledByAStoppedConsumer":                           true,
	"G08_CancelTxEndsAHandlerAfterItsCommit":                                               true,
	"G08_EitherAckTxOrCancelTakesEffect":                                                   true,
	"G10_ABatchIsNotVisibleBeforeThePreviousOne":                                           true,
	"G10_ALowMessageThatIsCommittedLateIsFound":                                            true,
	"G10_AMessageThatCommitsLateComesBeforeThoseThatWereSentAfterIt":                       true,
	"G10_ARedriveAfterOneThatWasRolledBackIsNotOvertaken":                                  true,
	"G10_ARedriveBeforeALockOnItsQueueIsNotOvertaken":                                      true,
	"G10_ARedriveThatStaysOpenIsNotOvertaken":                                              true,
	"G10_ARedriveThatWaitsForTheRowOfItsQueueIsNotOvertaken":                               true,
	"G10_WhatATransactionCommitsLateIsFound":                                               true,
	"G10_WhatATransactionOfTenSecondsCommitsIsFound":                                       true,
	"G11_AnAckTxBlocksItsKeyAlone":                                                         true,
	"G12_ALockOnADeadMessageStopsItsKeyAlone":                                              true,
	"G12_ALockOnTheRowOfAConsumerStopsNoMessage":                                           true,
	"G12_ALockOnTheRowOfAQueueStopsNoMessage":                                              true,
	"G12_ALockedRowDelaysItselfOnly":                                                       true,
	"G12_ALockedRowOfAPipeDelaysItselfOnly":                                                true,
	"G12_AMessageThatLostALeaseAndIsLockedDelaysItselfOnly":                                true,
	"G12_AnExpiredLeaseBehindALockedMessageIsFound":                                        true,
	"G12_AnInputWhoseOutputHangsIsDeadLetteredAlone":                                       true,
	"G12_AnOutputWhoseKeyIsTakenByAnOpenTransactionDelaysTheOthersOfItsBatchForAWhileOnly": true,
	"InTxWakesForMessagesBeforeTheHead":                                                    true,
	"NoChangeIsLostWithAnyOnDuplicateButKeepFirst":                                         true,
	"PipeReplacesInputsByOutputs":                                                          true,
	"PipeStoresEachOutputOnceWhicheverOperationIsCut":                                      true,
	"RedriveMovesEachOnceWhileAConsumerDeadLettersAgain":                                   true,
	"ShutdownWaitsForARollbackOnlyAsLongAsTheLeaseLasts":                                   true,
	"StopWhenIdleEndsWhereALockedRowIsDeleted":                                             true,
	"StopWhenIdleWaitsForALockedRow":                                                       true,
	"TablesOfAPackageAreCreatedOnceByManyProcesses":                                        true,
	"TheViewWaitsForNoLockAndHoldsOneAtMost":                                               true,
	"TwoTransactionsOfOneKeyWaitForEachOtherOnly":                                          true,
	"WakeFindsALateCommitImmediately":                                                      true,
}

// clientSide are tests that do not depend on SQL statements and take long on the emulator. In the default tier they run on SQLite in
// memory only, in the long tier also on one kind of emulator and PostgreSQL, and in the soak tier on all engines.
var clientSide = map[string]bool{
	"AHookThatBlocksDelaysNoExtensionAndNoShutdown":                true,
	"AckOfManyReturnsWithItsContextWhereTheBacklogIsFull":          true,
	"G11_ALeaseKeepsLittleMoreThanABodyOfBytes":                    true,
	"G11_ALeaseKeepsLittleMoreThanABodyOfText":                     true,
	"G11_ALeaseOfAConsumerKeepsItsOwnBodyAlone":                    true,
	"G11_ASlowKeyStaysWithinItsBoundsAndDelaysNoOtherKeyOfItsSlot": true,
	"G11_KeysThatWaitForARetryTakeNoRoomOfOthers":                  true,
	"G11_TheBacklogOfSettlesIsBoundedAndPausesClaims":              true,
	"G06_APermanentErrorLetsHandlersDrain":                         true,
	"G06_ASecondSignalEndsTheTimeToDrain":                          true,
	"G06_DeadLetterAndSnoozeOfLateHandlersAreStored":               true,
	"G06_HandlersThatReturnInTimeSettle":                           true,
	"G06_TheStopIsBoundedThoughTheDatabaseIsAway":                  true,
	"G06_WhatIsBufferedIsReleasedWhileHandlersDrain":               true,
	"G12_AnExtensionThatTakesLongLosesNoOtherLease":                true,
	"HandleBatchesChecksItsArguments":                              true,
	"HandleBatchesContinuesAfterAPanicAndAChangedBatch":            true,
	"ReceiveReturnsWithItsContextWhereTheBacklogIsFull":            true,
	"StatsAreExactWhateverTheOtherStatesHold":                      true,
	"StopWhenIdleEndsOnceAllThatIsDueIsHandled":                    true,
	"StopWhenIdleHandlesAKeyInOrderAndEnds":                        true,
	"ABusyConsumerAlsoReturnsSlots":                                true,
}

const kills = "it runs several processes"

type test struct {
	name string
	run  func(*world)
}

// world is the database of one test, with steps that only these tests use.
type world struct{ *testdb.World }

// shortLease is for leases that expire in the test. formerLease is for a holder that loses its lease after the message was delivered to it.
// steadyLease is for leases that must not expire. On a real clock they are longer, since a statement might take a second on a loaded
// machine. lastingLease is steadyLease for tests that would fail if a lease expired: extensions save it unless the machine stalls for
// half of its time.
var (
	shortLease  = slowness * 300 * time.Millisecond
	formerLease = slowness * 500 * time.Millisecond
	steadyLease = slowness * 1500 * time.Millisecond

	lastingLease = testdb.Slowness * testdb.Of(1500*time.Millisecond, 10*time.Second)

	slowness = testdb.Slowness * testdb.Of[time.Duration](1, 3)
)

// sendApart sends messages with these bodies. In an ordered queue each has its body as its key.
func (w *world) sendApart(q *chanq.Queue[string], bodies ...string) []chanq.ID {
	w.Helper()
	ms := testdb.Texts(bodies...)
	for i := range ms {
		if q.Spec().Kind == chanq.KindOrdered {
			ms[i].Key = ms[i].Body
		}
	}
	return testdb.Send(w, q, ms...)
}

// begin begins a transaction that the test ends.
func (w *world) begin(db *sql.DB) *sql.Tx {
	w.Helper()
	tx, err := db.BeginTx(w.Soon(), nil)
	require.NoError(w, err)
	return tx
}

func (w *world) sendTx(q *chanq.Queue[string], tx *sql.Tx, ms ...chanq.Message[string]) {
	w.Helper()
	_, err := q.SendTx(w.Soon(), tx, ms...)
	require.NoError(w, err)
}

func (w *world) peek(q *chanq.Queue[string], s chanqadmin.State, n int) []chanqadmin.Entry {
	w.Helper()
	list, err := testdb.Peek(w.Soon(), q, s, n)
	require.NoError(w, err)
	return list
}

func (w *world) redrive(q *chanq.Queue[string], limit int) (moved int) {
	w.Helper()
	moved, err := testdb.Redrive(w.Soon(), q, limit)
	require.NoError(w, err)
	return moved
}

func (w *world) redriveIDs(q *chanq.Queue[string], ids ...chanq.ID) (moved []chanq.ID) {
	w.Helper()
	moved, err := testdb.RedriveIDs(w.Soon(), q, ids...)
	require.NoError(w, err)
	return moved
}

func (w *world) purge(q *chanq.Queue[string], s chanqadmin.State) (deleted int) {
	w.Helper()
	deleted, err := testdb.Purge(w.Soon(), q, s)
	require.NoError(w, err)
	return deleted
}

func claims(op faultdb.Op, q sqlbatch.Queue) bool {
	return testdb.Runs(op, q.Claim(sqlbatch.ClaimParams{Rows: 1})) || testdb.Runs(op, q.Claim(sqlbatch.ClaimParams{Rows: 1, PastReaders: true}))
}

// looks reports whether op is a poll of an idle consumer, which a busy consumer also does once a second.
func looks(op faultdb.Op, q sqlbatch.Queue) bool {
	return testdb.Runs(op, q.NextDue(sqlbatch.Heads{})) || testdb.Runs(op, q.Rescan())
}

// reads reports whether op reads the contents of one message, which its consumer has leased.
func reads(op faultdb.Op, q sqlbatch.Queue) bool {
	return testdb.Runs(op, q.Contents(sqlbatch.Item{}))
}

func rescues(op faultdb.Op, q sqlbatch.Queue) bool {
	return testdb.Runs(op, q.Rescue(sqlbatch.RescueParams{}))
}

func acks(op faultdb.Op, q sqlbatch.Queue) bool {
	return testdb.Runs(op, q.Ack(nil)) || testdb.Runs(op, q.SkipLocked().Ack(nil))
}

// extends reports whether op is an extension, by the extender or by Lease.Extend.
func extends(op faultdb.Op, q sqlbatch.Queue) bool {
	return testdb.Runs(op, q.Extend([16]byte{}, nil, 0)) || testdb.Runs(op, q.SkipLocked().Extend([16]byte{}, nil, 0))
}

func enqueues(op faultdb.Op, q sqlbatch.Queue) bool {
	return op.Kind == faultdb.Exec && testdb.RunsStore(op, 1, q.Enqueue)
}
