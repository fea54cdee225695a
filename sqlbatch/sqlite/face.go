package sqlite

import (
	"strconv"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
)

// viewColumns has the columns of the view for a live message and for a dead one. The whole body is read for its
// beginning, but only if that column is selected: the length of a blob is known without it.
const (
	viewColumns = `SELECT CASE WHEN lease_until > {now} THEN 'leased' WHEN due_at > {now} THEN 'scheduled' ELSE 'ready' END AS state,
  lower(hex(id)) AS id, priority, {due_at as time} AS due_at, CASE WHEN leased_by IS NOT NULL THEN {lease_until as time} END AS lease_until,
  {enqueued_at as time} AS enqueued_at, {expires_at as time} AS expires_at, NULL AS ended_at, attempts, CAST(dedup_key AS TEXT) AS dedup_key, type{order},
  CAST(substr(headers, 1, 4000) AS TEXT) AS headers, CAST(substr(body, 1, 4000) AS TEXT) AS body, ` + viewBytes + ` AS bytes, last_error
FROM {live_unqualified} WHERE rowid IN (SELECT rowid FROM {live_unqualified} `
	viewDead = `SELECT 'dead', lower(hex(id)), priority, NULL, NULL, {enqueued_at as time}, NULL, {ended_at as time}, attempts, CAST(dedup_key AS TEXT), type{order},
  CAST(substr(headers, 1, 4000) AS TEXT), CAST(substr(body, 1, 4000) AS TEXT), ` + viewBytes + `, last_error
FROM {dead_unqualified} WHERE rowid IN (SELECT rowid FROM {dead_unqualified} ORDER BY ended_at DESC, id DESC LIMIT 1000)`
	viewBytes = `CASE WHEN typeof(body) = 'blob' THEN length(body) ELSE length(CAST(body AS BLOB)) END`
)

// View shows the first messages of each priority, or of the queue if it is ordered, and the last dead messages. Each
// part is found in the order of an index, so that it has a bound and needs no sort. See docs/guides/sql.md. SQLite cannot
// replace a view: an existing one, perhaps an older one, is dropped.
func (dialect) View(n sqlbatch.Names) []string {
	r := newRenderer(n)
	var parts []string
	if r.ordered {
		parts = append(parts, viewColumns+`ORDER BY seq LIMIT 1000)`)
	} else {
		for priority := sqlbatch.PriorityUrgent; priority >= sqlbatch.PriorityLow; priority-- {
			parts = append(parts, viewColumns+`INDEXED BY {due_ix_unqualified} WHERE priority = `+strconv.Itoa(priority)+` ORDER BY due_at, id LIMIT 1000)`)
		}
	}
	text := `CREATE VIEW {messages} AS
` + strings.Join(append(parts, viewDead), "\nUNION ALL\n")
	for _, column := range []string{"due_at", "lease_until", "enqueued_at", "expires_at", "ended_at"} {
		text = strings.ReplaceAll(text, "{"+column+" as time}", `strftime('%Y-%m-%d %H:%M:%f', `+column+` / 1000.0, 'unixepoch')`)
	}
	return []string{r.Replace(dropView), r.Replace(text)}
}

// Procedures: SQLite has none.
func (dialect) Procedures(sqlbatch.Names) []string { return nil }
