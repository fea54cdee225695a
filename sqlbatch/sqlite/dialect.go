// Package sqlite builds the SQL of chanq for SQLite.
package sqlite

import (
	"time"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/seal"
)

// Dialect is the SQL of SQLite 3.37 and later, for any driver whose errors have a method Code; it is tested with
// modernc.org/sqlite.
//
// A batch is sent as one packed blob of fixed-width records and one blob of all variable-length values, and the
// statement cuts them into parts with substr: two parameters and one text for any count of rows. Binding six parameters
// per row costs three to four times as much (docs/internals/decisions.md).
var Dialect sqlbatch.Dialect = dialect{}

type dialect struct{ seal.Seal }

func (dialect) Name() string { return "sqlite" }

func (dialect) Traits() sqlbatch.Traits {
	return sqlbatch.Traits{
		OneWriter: true, Prepare: true, PrepareTells: true, Schema: "main", Remedies: remedies,
		EnqueueRows: 1000, ClaimRows: 1000,
		AckItems: 1000, NackItems: 1000, DeadLetterItems: 1000, FindIDs: 1000,
	}
}

var remedies = map[string]string{
	sqlbatch.ProblemEncoding:   "the encoding of a file cannot be changed: copy what it holds into one that was made with PRAGMA encoding = 'UTF-8', the default",
	sqlbatch.ProblemTable:      "rename it, and run chanq.Migrate",
	sqlbatch.ProblemMemory:     "use embedded.Open(\":memory:\"), the DSN file::memory:?cache=shared, or a file",
	sqlbatch.ProblemDurability: "open the file by embedded.Open, or with PRAGMA synchronous = FULL on every connection, and a journal (WAL or DELETE) that is on disk",
}

// queue has the statements of one queue, every text rendered.
type queue struct {
	seal.Seal
	enqueue, enqueueNew, find, look                                     string
	unkey, keep, replace                                                string // of a plain queue
	claim, contents, nextDue, rescan, rescue                            string
	dueOrLocked                                                         string
	ack, archiveInsert, extend                                          string
	nack, snooze, deadLetterInsert, deadLetterDelete, release           string
	version, record, problems, missing, clock                           string
	stats, empty, get, part, cancel, runNow, surrender, discard, queues string
	shrink                                                              string
	causes, deaths, walk, walkGroup                                     string
	bodies                                                              map[bool]string // true: of dead messages
	drop                                                                []string
	redriveOldest, redriveListed                                        string
	redriveInsert, redriveDelete, redriveCount                          string
	configure, pause, resume                                            string
	trim                                                                map[sqlbatch.State]string
	joinSweep, join, leave, consumers                                   string
	peek, browse, purge                                                 map[sqlbatch.State]string
	sample, counted, samples, thin                                      string

	ordered                                       bool // the following fields are only for an ordered queue
	slots, takeSlots, giveSlots, slotStats, reach string
	readers
}

// Watch has no text: see Dialect.Watch.
func (dialect) Watch([]sqlbatch.Watched, time.Duration, time.Duration) sqlbatch.Statement {
	return sqlbatch.Statement{}
}

func (dialect) Queue(n sqlbatch.Names) sqlbatch.Queue {
	r := newRenderer(n)
	text := r.Replace
	q := &queue{
		ordered: r.ordered,
		enqueue: text(enqueueText), enqueueNew: text(enqueueNewText), unkey: text(unkeyText), keep: text(overText(keeping)), replace: text(overText(replacing)), find: text(findText), look: text(lookText),
		claim: text(lanes(claimText, claimLane, claimRange)), contents: text(contentsText),
		nextDue: text(lanes(nextDueText, nextDueLane, fromHead)), dueOrLocked: text(lanes(nextDueText, nextDueLane, dueOrLockedRange)), rescan: text(lanes(rescanText, rescanLane, "")), rescue: text(rescueText()),
		ack: text(ackText), archiveInsert: text(archiveInsertText), extend: text(extendText),
		nack: text(nackOf(`q.attempts - q.lapses`, failed)), snooze: text(nackOf(`q.attempts - q.lapses - 1`, kept)), deadLetterInsert: text(deadLetterInsertText), deadLetterDelete: text(deadLetterDeleteText),
		release: text(releaseText),
		version: text(versionText), record: text(recordText), problems: text(problemsText), missing: text(missingText), clock: text(clockText),
		stats: text(statsText), empty: text(emptyText), get: text(getText), part: text(partText),
		cancel:        text(cancelText),
		runNow:        text(runNowText),
		surrender:     text(surrenderText(r.ordered)),
		discard:       text(discardText),
		bodies:        map[bool]string{false: text(bodiesText + "{live}" + ofIDs), true: text(bodiesText + "{dead}" + ofIDs)},
		causes:        text(causesText),
		deaths:        text(deathsText),
		walk:          text(walkText),
		walkGroup:     text(walkGroup),
		queues:        text(queuesText),
		shrink:        text(shrinkText),
		drop:          []string{text(dropConsumers), text(dropRecord), text(dropView), text(dropLive), text(dropDead), text(dropDone), text(dropSamples)},
		redriveOldest: text(redriveMark + oldestDead), redriveListed: text(redriveMark + listedDead),
		redriveInsert: text(redriveInsert), redriveDelete: text(redriveDelete), redriveCount: text(redriveCount),
		configure: text(configureText), pause: text(pauseText), resume: text(resumeText),
		trim:      map[sqlbatch.State]string{sqlbatch.Dead: text(trimText("{dead}")), sqlbatch.Done: text(trimText("{done}"))},
		joinSweep: text(joinSweepText), join: text(joinText), leave: text(leaveText), consumers: text(consumersText),
		sample: text(sampleText()), counted: text(countedText), samples: text(samplesText), thin: text(thinText()),
		peek: map[sqlbatch.State]string{
			sqlbatch.Dead: text(peekDead),
			sqlbatch.Done: text(peekDone),
		},
		browse: map[sqlbatch.State]string{},
		purge: map[sqlbatch.State]string{
			sqlbatch.Ready:     text(purgeReady),
			sqlbatch.Scheduled: text(purgeScheduled),
			sqlbatch.Leased:    text(purgeLeased),
			sqlbatch.Dead:      text(purgeDead),
			sqlbatch.Done:      text(purgeDone),
		},
	}
	for state, template := range browseTexts(r.ordered) {
		q.browse[state] = text(template)
	}
	if r.ordered {
		q.order(text)
	}
	return q
}

// order renders the texts that only ordered queues have, or that differ there.
func (q *queue) order(text func(string) string) {
	q.slots, q.takeSlots, q.giveSlots = text(slotsText), text(takeSlotsText), text(giveSlotsText)
	q.slotStats, q.reach = text(slotStatsText), text(reachText)
	q.stats = text(orderedStatsText)
	q.readers = newReaders(text)
	q.settles(text)
	q.drop = append(q.drop, text(dropSlots))
	for state, condition := range seqStates {
		q.purge[state] = text(purgeSeq + condition + purgeSeqEnds[state])
	}
}

// InTx returns the same queue: no text begins or ends a transaction.
func (q *queue) InTx() sqlbatch.Queue { return q }

// InOwnTx returns the same queue as well.
func (q *queue) InOwnTx() sqlbatch.Queue { return q }

// SkipLocked returns the same queue: with one writer there are no locks on rows.
func (q *queue) SkipLocked() sqlbatch.Queue { return q }
