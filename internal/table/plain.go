package table

import (
	"bytes"
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// Plain has the statements of a consumer of a plain queue. One goroutine uses it, and another one for rescans.
type Plain struct {
	Claims
	Notes *session.Part // for slow rescans
}

// Claim leases messages.
func (p *Plain) Claim(within time.Duration, c sqlbatch.ClaimParams, into *ClaimedRows) error {
	err := p.run(within, p.SQL.Claim(c), into.scan)
	if err == nil {
		p.busy = len(into.Rows) > 0
	}
	return err
}

// Contents reads the contents of a leased message into its row. found is false if the lease is lost.
func (p *Plain) Contents(within time.Duration, into *Claimed) (found bool, err error) {
	err = p.run(within, p.SQL.Contents(into.Item), func(rows *sql.Rows) error {
		found = true
		var key, kind, headers, body sql.RawBytes
		err := rows.Scan(&key, &kind, &headers, &body)
		into.Key, into.Type, into.Headers, into.Body = bytes.Clone(key), bytes.Clone(kind), bytes.Clone(headers),
			bytes.Clone(body)
		return err
	})
	return found, err
}

// Look looks up which rows exist.
func (p *Plain) Look(within time.Duration, ids [][16]byte) (Seen, error) {
	return p.Table.Look(p.Context, within, ids)
}

// NextDue returns the time until the first message behind these places is due: the greatest Duration if there is none.
func (p *Plain) NextDue(within time.Duration, from sqlbatch.Heads) (due time.Duration, err error) {
	return p.due(within, p.SQL.NextDue(from))
}

// DueOrLocked reports whether a message is due, or might be: messages that other sessions have locked count as due.
func (p *Plain) DueOrLocked(within time.Duration) (bool, error) {
	due, err := p.due(within, p.SQL.DueOrLocked())
	return due <= 0, err
}

// due runs a poll on the session that idle consumers share.
func (p *Plain) due(within time.Duration, st sqlbatch.Statement) (due time.Duration, err error) {
	ctx, cancel := context.WithTimeout(p.Context, within)
	defer cancel()
	var ms sql.NullInt64
	_, err = p.Part.RunPatient(ctx, st, func(rows *sql.Rows) error { return rows.Scan(&ms) })
	if !ms.Valid {
		return math.MaxInt64, err
	}
	return time.Duration(ms.Int64) * time.Millisecond, err
}

// Rescan is the result of a rescan, which reads from the beginning.
type Rescan struct {
	Known     bool // false: the queue is paused
	Heads     sqlbatch.Heads
	Ready     [sqlbatch.Priorities]bool // there is something to claim
	Due       time.Duration             // until there might be something to claim; the greatest: there is no message
	Consumers int
	Lapsed    bool   // the first message of a priority has lost a lease
	Lost      []Lost // the first message of each priority whose lease has expired
}

// Lost is where a rescue begins.
type Lost struct {
	Priority int8
	From     sqlbatch.Head
}

// Rescan reads from the beginning. A slow one has a session of housekeeping, so that claims need not wait for theirs.
// If it fails for good, only the connection might be the cause: it is run again on a session of claims, which tries new
// ones (Part.afresh). took excludes the wait for a session.
func (p *Plain) Rescan(ctx context.Context, slow bool) (r Rescan, took time.Duration, err error) {
	run := p.Part.RunPatient
	if slow {
		run = p.Notes.RunTimed
	}
	r.Due = math.MaxInt64
	took, err = run(ctx, p.SQL.Rescan(), func(rows *sql.Rows) error {
		var priority, at int64
		var due, lapses, lostAt sql.NullInt64
		var first, lost sql.RawBytes
		if err := rows.Scan(&priority, &at, &due, &r.Consumers, &first, &lapses, &lostAt, &lost); err != nil {
			return err
		}
		r.Lapsed = r.Lapsed || lapses.Int64 > 0
		if lost != nil {
			r.Lost = append(r.Lost, Lost{int8(priority), sqlbatch.Head{Due: lostAt.Int64, ID: [16]byte(lost)}})
		}
		lane := priority - sqlbatch.PriorityLow
		r.Known, r.Heads[lane].Due, r.Ready[lane] = true, at, due.Valid && due.Int64 <= 0
		copy(r.Heads[lane].ID[:], first)
		if due.Valid {
			r.Due = min(r.Due, time.Duration(due.Int64)*time.Millisecond)
		}
		return nil
	})
	if slow && err != nil && IsPermanent(p.Classify(err)) {
		return p.Rescan(ctx, false)
	}
	r.Known = r.Known && err == nil
	return r, took, err
}

// Rescue makes messages ready whose leases have expired, and returns their places.
func (p *Plain) Rescue(within time.Duration, r sqlbatch.RescueParams) (places []Lost, err error) {
	err = p.run(within, p.SQL.Rescue(r), func(rows *sql.Rows) error {
		var id sql.RawBytes
		var place Lost
		err := rows.Scan(&id, &place.Priority, &place.From.Due)
		copy(place.From.ID[:], id)
		places = append(places, place)
		return err
	})
	return places, err
}
