// Package guarantees is the suite that every engine passes: one test for each
// guarantee of chanq, and for each behaviour that its documentation promises.
// It drives the public API against a real database through faultdb, which cuts,
// fails and holds the statements it chooses.
package guarantees

import (
	"testing"
	"time"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// run runs the suite.
func run(t *testing.T, e testdb.Engine) {
	e.Require(t)
	t.Parallel()
	for _, suite := range [][]test{
		delivery, leasing, settling, stopping, ending, batching, sending, deduplicating, transacting, inTx, direct, ordering, finding, bounds, reading, piping,
		operating, selecting, emptying, idling, sweeping, trusting, outages, stuck, trouble, slow, isolating, pipeTrouble, outliving, misbehaving, falling, hooking, wrapping, drivers, codecs, contexts, processes, claiming, lapsing, dying, expiring, joining, sparing, dropping, ahead, handing, waking, wakingCosts, wakingOwners,
		kinds, specs, ordered, orderedReading, orderedTrouble, orderedConsumers, orderedSlots, orderedTrials, orderedBlocked, foreign, facing,
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
				if !e.Bubble && (over20s[c.name] || isVariant(c.name)) {
					testdb.Soak(t)
				}
				testdb.Run(t, e, func(w *testdb.World) { c.run(&world{w}) })
			})
		}
	}
}

// onRealClocks are the tests that a bubble cannot hold, with the reason.
var onRealClocks = map[string]string{
	"G01_MessagesOfAKilledProcessAreDeliveredAgain":       kills,
	"G01_WhatAKilledProcessHasSentIsStored":               kills,
	"G02_ProcessesShareAQueueWithoutTakingAMessageTwice":  kills,
	"G07_AMessageThatKillsItsProcessIsDeadLettered":       kills,
	"ManyProcessesMayMigrateAtOnce":                       kills,
	"G01_OpenAndMigrateRefuseADatabaseThatMayLoseCommits": "SQLite in memory has no durability to refuse",
	"G12_HungClaimPipeAndTrimLoseNoLease":                 "a statement that hangs in a *sql.Tx holds a mutex of database/sql, for which a bubble does not wait",
}

// outsideBubbles are the engines for those tests: the same ones, on a file and through a socket.
var outsideBubbles = map[string]testdb.Engine{
	testdb.Memory.Name:           testdb.SQLite,
	testdb.EmulatorVersions.Name: testdb.StandInVersions,
}

// over20s are the tests that take more than 20 s on the real clock of some engine, or of all engines together, because they wait. Bubbles
// run them by default, and real clocks in the soak tier. Not among them are those that wait for a lock of the server.
var over20s = map[string]bool{
	"ACommitThatHangsEndsWithTheContextOfItsLease":               true,
	"AHookThatBlocksEndsNoLeaseAndNoShutdown":                    true,
	"APausedOrderedQueueWithARetryCostsAsMuchAsAnIdleOne":        true,
	"APausedQueueWithManyRetriesIsAskedAboutOnce":                true,
	"AnIdleConsumerOfAnOrderedQueueLooksAndReadsOnceASecond":     true,
	"EveryCallThatTakesAContextReturnsWhenItEnds":                true,
	"G06_AHandlerThatNeverReturnsLosesItsLeaseAndIsReported":     true,
	"G06_HandleAndPipeReturnThoughAHookOrTheDriverHangs":         true,
	"G06_TheEndIsBoundedThoughTheDatabaseIsLost":                 true,
	"G07_ADeadMessageSaysHowOftenItWasTried":                     true,
	"G07_ClaimsWhoseAnswersAreLostBlameNoMessage":                true,
	"G07_ALastTrialWaitsForHandlersThatHaveSettledTheirMessages": true,
	"G07_AHandlerThatHangsIsDeadLetteredAfterMaxCrashes":         true,
	"G07_TheQueuesOfAProcessTryOneSuspectAtATime":                true,
	"G10_ARedriveAtAnyMomentIsNotOvertaken":                      true,
	"G10_LeasesThatExpireInAnOutageAreFoundSoonAfterIt":          true,
	"G10_ExpiredLeasesAreFoundAlthoughRescansTakeLong":           true,
	"G12_ALockedRowOfAnotherTableThanTheMessagesLosesNoLease":    true,
	"G12_ALookThatHangsLosesNoLease":                             true,
	"G12_AMessageBehindAHandlerThatHangsIsReleasedUncounted":     true,
	"G12_AMessageThatClaimsHangOnIsFoundByShortClaims":           true,
	"G12_ARecurringTaskThatHangsLosesNoLease":                    true,
	"G12_ASettleEndsThoughItsExtensionsTakeLong":                 true,
	"G12_AStatementOfClaimsThatHangsLosesNoLease":                true,
	"G12_AnExtendThatHangsLosesNoLease":                          true,
	"G12_AnExtensionThatHangsLosesNoLease":                       true,
	"G12_AnExtensionThatTakesLongLosesNoOtherLease":              true,
	"G12_ExtensionsThatFailLoseNoOtherLease":                     true,
	"G12_MessagesOvertakeOneWhoseContentsDoNotArrive":            true,
	"G12_SettlesThatFailAloneDelayNoOther":                       true,
	"G12_SettlesThatTakeLongDelayNoOtherAndEnd":                  true,
	"MaxExtendCountsFromWhenAReaderTakesTheMessage":              true,
	"NoLeaseInTheBufferExpiresDuringALongJob":                    true,
	"ReceiveReturnsWithItsContextWhereTheBacklogIsFull":          true,
	"StopWhenIdleFindsWhatIsBelowItsClaims":                      true,
	"TheHistoryHasHowLongMessagesHadBeenDue":                     true,
	"WhileAQueueIsPausedNoSuspectIsMarked":                       true,
}

// clientSide are tests of what no statement decides and that take long on the emulator: SQLite has to do in the default tier.
var clientSide = map[string]bool{
	"AHookThatBlocksEndsNoLeaseAndNoShutdown":                   true,
	"AckOfManyReturnsWithItsContextWhereTheBacklogIsFull":       true,
	"G11_AHotKeyFillsNoBufferAndStallsItsSlotAlone":             true,
	"G11_ALeaseKeepsLittleMoreThanABodyOfBytes":                 true,
	"G11_ALeaseKeepsLittleMoreThanABodyOfText":                  true,
	"G11_ALeaseOfAConsumerKeepsItsOwnBodyAlone":                 true,
	"G11_ASlowKeyStaysWithinItsBoundsAndOtherKeysOfItsSlotCome": true,
	"G11_KeysThatWaitForARetryTakeNoRoomOfOthers":               true,
	"G11_TheBacklogOfSettlesIsBoundedAndPausesClaims":           true,
	"G06_APermanentErrorLetsHandlersDrain":                      true,
	"G06_ASecondSignalEndsTheTimeToDrain":                       true,
	"G06_DecisionsOfLateHandlersStand":                          true,
	"G06_BatchedSettlesAreStoredBeforeHandleReturns":            true,
	"G06_HandlersThatReturnInTimeSettle":                        true,
	"G06_TheEndIsBoundedThoughTheDatabaseIsLost":                true,
	"G06_WhatIsBufferedIsReleasedWhileHandlersDrain":            true,
	"G12_AnExtensionThatTakesLongLosesNoOtherLease":             true,
	"G12_ExtensionsThatFailLoseNoOtherLease":                    true,
	"HandleBatchesChecksItsArguments":                           true,
	"HandleBatchesSurvivesWhateverItsFunctionDoes":              true,
	"NoMessageWaitsForAPollAfterSlotsHaveMoved":                 true,
	"ReceiveReturnsWithItsContextWhereTheBacklogIsFull":         true,
	"StatsAreExactWhateverTheOtherStatesHold":                   true,
	"StopWhenIdleEndsEachOfTwoConsumersOfOneQueue":              true,
	"StopWhenIdleEndsOnceAllThatIsDueIsHandled":                 true,
	"StopWhenIdleHandlesAKeyInOrderAndEnds":                     true,
	"ABusyConsumerAlsoReturnsSlots":                             true,
}

const kills = "it runs several processes"

type test struct {
	name string
	run  func(*world)
}

// world is one test's database, with the steps that only these tests take.
type world struct{ *testdb.World }

// shortLease is the lease of tests that see one end, formerLease of a holder that has lost it, to whom
// it has to be delivered before. steadyLease is that of tests where none may end. On a real clock they are longer, since a loaded
// machine may take a second for a statement.
var (
	shortLease  = slowness * 300 * time.Millisecond
	formerLease = slowness * 500 * time.Millisecond
	steadyLease = slowness * 1500 * time.Millisecond

	slowness = testdb.Slowness * testdb.Of[time.Duration](1, 3)
)

func claims(op faultdb.Op, q sqlbatch.Queue) bool {
	return testdb.Runs(op, q.Claim(sqlbatch.ClaimParams{Rows: 1}))
}

// looks are what an idle consumer does, and one at work once a second.
func looks(op faultdb.Op, q sqlbatch.Queue) bool {
	return testdb.Runs(op, q.NextDue(sqlbatch.Heads{})) || testdb.Runs(op, q.Rescan())
}

// reads are those of one message, which its consumer has leased by then.
func reads(op faultdb.Op, q sqlbatch.Queue) bool {
	return testdb.Runs(op, q.Contents(sqlbatch.Item{}))
}

func marks(op faultdb.Op, q sqlbatch.Queue) bool {
	return testdb.Runs(op, q.Mark(sqlbatch.MarkParams{}))
}

func acks(op faultdb.Op, q sqlbatch.Queue) bool {
	return testdb.Runs(op, q.Ack(nil)) || testdb.Runs(op, q.SkipLocked().Ack(nil))
}

// extends are the extender's and Lease.Extend's.
func extends(op faultdb.Op, q sqlbatch.Queue) bool {
	return testdb.Runs(op, q.Extend([16]byte{}, nil, 0)) || testdb.Runs(op, q.SkipLocked().Extend([16]byte{}, nil, 0))
}

func enqueues(op faultdb.Op, q sqlbatch.Queue) bool {
	return op.Kind == faultdb.Exec && testdb.Runs(op, q.Enqueue(make([]sqlbatch.Row, 1)))
}
