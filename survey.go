package chanq

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// The surveys of a consumer: see floor.go. The claimer makes them while it wants
// messages. The first comes before the first claim, which would walk, with its leases
// running, whatever the survey walks. An idle consumer makes one in place of its poll.
//
// The claimer waits for a survey, on the session of claims, as long as surveys are
// quick. One that follows on a slow one runs in a goroutine of its own and on a session
// apart, and claims go on beside it. It ends by itself, or with Stop, and Shutdown joins
// it.
//
// After a failure the next claim tells whether the database answers. Once it does, after
// an outage, a survey is due at once: leases have run out meanwhile.

// surveyor is what the claimer knows of its surveys. Only the claimer uses it.
type surveyor struct {
	floor    floor
	patience time.Duration // of the next one
	apart    bool          // the next one is to be beside the claims
	known    bool          // there was one
	failed   bool          // the last one, or a claim since
	away     bool          // a claim has waited for its failure
}

// mostPatience is how long a survey may take at last: each that ran out of its time leaves
// the next one twice as much.
const mostPatience = time.Hour

// survey makes a survey, if one is due, and takes the result of one that has ended. It
// returns the failure of one that claims wait for.
func (c *consumer[T]) survey(loop *batch.Loop) *batch.Failure {
	c.hear()
	select {
	case s := <-c.surveyed:
		c.surveyEnded(s)
	default:
	}
	if c.surveys.failed && c.surveys.known || !c.surveys.floor.isDue(base.Now()) {
		return nil
	}
	if c.surveys.apart {
		c.surveyApart()
		return nil
	}
	return loop.Try(c.stop, func(context.Context) error {
		s, _ := c.surveyNow()
		return s.err
	})
}

// hear takes note of what this process gave back, and of who says that there is something.
func (c *consumer[T]) hear() {
	low, hurried := c.ears.heard()
	c.surveys.floor.lower(low)
	c.surveys.floor.hurried = c.surveys.floor.hurried || hurried
}

// surveyNow makes a survey on the session of claims, and waits for it. below is endSurvey's.
func (c *consumer[T]) surveyNow() (s survey, below bool) {
	run := c.sessions.RunPatientTimed
	if c.flow.atWork {
		run = c.sessions.RunTimed
	}
	c.surveys.floor.begin(base.Now())
	s = c.queue.survey(c.stop, c.surveys.patience, run)
	if s.known {
		c.subscription.Looked(s.due)
	}
	return s, c.endSurvey(s)
}

// surveyApart begins a survey beside the claims.
func (c *consumer[T]) surveyApart() {
	c.surveys.floor.begin(base.Now())
	patience := c.surveys.patience
	c.joined.Go(func() { c.surveyed <- c.queue.survey(c.stop, patience, c.notes.RunTimed) })
}

// endSurvey takes what a survey found. It reports that there is something to claim below
// where claims have got to.
func (c *consumer[T]) endSurvey(s survey) (below bool) {
	if s.err != nil && table.IsPermanent(c.queue.classify(s.err)) {
		c.broken(c.queue.fail("claim", s.err))
	}
	v := &c.surveys
	v.failed = s.err != nil
	if s.known {
		slices.SortFunc(s.suspects, func(a, b suspect) int { return b.lane - a.lane })
		c.careful.found = s.suspects
	}
	var notRun *session.NotRunError
	switch {
	case s.err == nil:
		v.known, v.patience = true, c.cfg.StatementTimeout
		v.apart = s.took > surveySlow
	case errors.As(s.err, &notRun) && notRun.Unconnected:
		v.apart = false // the application may use all connections, but for those of claims
	case s.late:
		v.patience = min(2*v.patience, mostPatience)
		v.apart = v.known
	}
	return v.floor.end(s)
}

// surveyEnded takes the result of a survey apart. It reports that the claimer has
// something to do: a claim, which tells whether the database answers, too.
func (c *consumer[T]) surveyEnded(s survey) bool {
	return c.endSurvey(s) || s.err != nil || c.suspectsWait()
}

// atOnce has the next survey made at once, before the next claim.
func (v *surveyor) atOnce() { v.apart, v.floor.hurried, v.floor.rest = false, true, 0 }

// claimFailed notes a claim that failed, and for how long it had tried.
func (v *surveyor) claimFailed(took time.Duration) {
	v.failed, v.away = true, v.away || took > surveySlow
}

// claimWorked notes that the database answers.
func (v *surveyor) claimWorked() {
	if v.away {
		v.floor.recovered()
	}
	v.failed, v.away = false, false
}

// sessionRunner runs a statement as session.Part.RunTimed does.
type sessionRunner = func(context.Context, sqlbatch.Statement, func(*sql.Rows) error) (time.Duration, error)

// survey looks from the beginning.
func (q *queue) survey(ctx context.Context, patience time.Duration, run sessionRunner) survey {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s := survey{due: math.MaxInt64}
	s.took, s.err = run(ctx, q.sql.Survey(), func(rows *sql.Rows) error {
		var priority, at int64
		var due, fence, crashes, alone sql.NullInt64
		var id sql.RawBytes
		if err := rows.Scan(&priority, &at, &due, &s.members, &id, &fence, &crashes, &alone); err != nil {
			return err
		}
		if id != nil {
			found := suspect{lane: int(priority), crashes: int(crashes.Int64), alone: sqlbatch.Alone(alone.Int64)}
			copy(found.item.ID[:], id)
			found.item.Fence = fence.Int64
			s.suspects = append(s.suspects, found)
		}
		lane := priority - sqlbatch.PriorityLow
		s.known, s.floors[lane], s.ready[lane] = true, at, due.Valid && due.Int64 <= 0
		if due.Valid {
			s.any, s.due = true, min(s.due, time.Duration(due.Int64)*time.Millisecond)
		}
		return nil
	})
	s.known = s.known && s.err == nil
	s.late = s.err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded)
	s.began = base.Now() - s.took
	return s
}
