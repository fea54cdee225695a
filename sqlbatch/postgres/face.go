package postgres

import (
	"strings"

	"github.com/chanq/chanq/sqlbatch"
)

// The view and the function that other programs can use in addition to the tables: see docs/guides/sql.md.

// viewText shows the first messages of each priority, or of each slot, and the last dead messages. Each part is in the
// order of an index, so that it has a bound and needs no sort: the ranges compare rows for the reason given at
// behindSeq, and there are two limits for the reason given at chosen. Bodies and headers are cut before they are shown,
// and of a long body only its first part is read.
const viewText = `CREATE OR REPLACE VIEW {messages} AS
SELECT m.state, m.id, m.priority,
  to_timestamp(m.due_at / 1000.0) AS due_at, to_timestamp(m.lease_until / 1000.0) AS lease_until,
  to_timestamp(m.enqueued_at / 1000.0) AS enqueued_at, to_timestamp(m.expires_at / 1000.0) AS expires_at, to_timestamp(m.ended_at / 1000.0) AS ended_at,
  m.attempts, m.dedup_key, m.type,{view order}
  {text of headers} AS headers,
  {text of body} AS body,
  m.bytes, m.last_error
FROM (
  SELECT CASE WHEN q.lease_until > {now} THEN 'leased' WHEN q.due_at > {now} THEN 'scheduled' ELSE 'ready' END AS state,
    q.id, q.priority, q.due_at, CASE WHEN q.leased_by IS NOT NULL THEN q.lease_until END AS lease_until, q.enqueued_at, q.expires_at, NULL::bigint AS ended_at,
    q.attempts, q.dedup_key, q.type{q.order}, substring(q.headers FROM 1 FOR 4000) AS headers, substring(q.body FROM 1 FOR 4000) AS body, octet_length(q.body) AS bytes, q.last_error
  FROM {view parts}
  CROSS JOIN LATERAL (SELECT * FROM (SELECT q.* FROM {live} AS q WHERE {view lane}) AS l LIMIT (SELECT 1000)) AS q
  UNION ALL
  SELECT 'dead', d.id, d.priority, NULL, NULL, d.enqueued_at, NULL, d.ended_at,
    d.attempts, d.dedup_key, d.type{d.order}, substring(d.headers FROM 1 FOR 4000), substring(d.body FROM 1 FOR 4000), octet_length(d.body), d.last_error
  FROM (SELECT e.* FROM {dead} AS e ORDER BY e.ended_at DESC, e.id DESC LIMIT 1000) AS d
) AS m`

// A text with bytes that are not UTF-8 would make the whole view fail. utf8Bytes are the byte sequences of valid UTF-8,
// in hexadecimal digits, without the zero byte, which no text may have. utf8Start are the incomplete sequences that a
// cut at 4,000 bytes might leave.
const (
	utf8Bytes = `(?:0[1-9a-f]|[1-7][0-9a-f]|(?:c[2-9a-f]|d[0-9a-f])[89ab][0-9a-f]|e0[ab][0-9a-f][89ab][0-9a-f]|(?:e[1-9abcef])(?:[89ab][0-9a-f]){2}|ed[89][0-9a-f][89ab][0-9a-f]` +
		`|f0[9ab][0-9a-f](?:[89ab][0-9a-f]){2}|f[123](?:[89ab][0-9a-f]){3}|f48[0-9a-f](?:[89ab][0-9a-f]){2})*`
	utf8Start = `(?:[cdef][0-9a-f](?:[89ab][0-9a-f]){0,2})?`
)

// textOf returns UTF-8 as text, and all other bytes as bytea prints them, with readable ASCII.
func textOf(column string) string {
	digits := `encode(` + column + `, 'hex')`
	return `CASE WHEN ` + digits + ` ~ '^` + utf8Bytes + utf8Start + `$'
    THEN convert_from(decode(substring(` + digits + ` FROM '^` + utf8Bytes + `'), 'hex'), 'UTF8')
    ELSE encode(` + column + `, 'escape') END`
}

// sendText is a function for both kinds of queues; for ordered ones it has a key in the place of priority and delay. It
// runs with the permissions of its owner, so its callers need no others. It therefore looks for names only in schemas
// that no other role can write to, and only roles to which its owner grants it may call it.
const (
	sendText = `CREATE OR REPLACE FUNCTION {send}(body text DEFAULT NULL, dedup_key text DEFAULT NULL, headers text DEFAULT NULL, priority integer DEFAULT 0, delay interval DEFAULT '0', id uuid DEFAULT NULL, ttl interval DEFAULT NULL, bytes bytea DEFAULT NULL, type text DEFAULT NULL)
RETURNS uuid LANGUAGE sql VOLATILE ` + asOwner + ` AS {$}
  INSERT INTO {live} AS q (id, priority, due_at, expires_at, dedup_key, type, headers, body)
  VALUES (coalesce($6, {new id}), coalesce($4, 0), (extract(epoch FROM statement_timestamp() + coalesce($5, '0')) * 1000)::bigint,
    (extract(epoch FROM statement_timestamp() + $7) * 1000)::bigint, nullif($2, ''), nullif($9, ''), convert_to($3, 'UTF8'), coalesce($8, convert_to($1, 'UTF8')))
  RETURNING q.id
{$}`

	// sendOrderedText computes the slot as SlotOf does, from the stored number of slots: the program that prints this
	// might not know it.
	sendOrderedText = `CREATE OR REPLACE FUNCTION {send}(body text DEFAULT NULL, key text DEFAULT NULL, dedup_key text DEFAULT NULL, headers text DEFAULT NULL, id uuid DEFAULT NULL, ttl interval DEFAULT NULL, bytes bytea DEFAULT NULL, type text DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql VOLATILE ` + asOwner + ` AS {$}
DECLARE
  new_id uuid := coalesce($5, {new id});
  line bytea := coalesce(convert_to(nullif($2, ''), 'UTF8'), uuid_send(new_id));
  hash bigint := 2166136261;
  slots integer := (SELECT s.slots FROM {queues} AS s WHERE s.name = {name});
  new_seq bigint := (` + drawText + `) * {seqs};
BEGIN
  FOR i IN 0 .. length(line) - 1 LOOP
    hash := (hash # get_byte(line, i)) * 16777619 & 4294967295;
  END LOOP;
  INSERT INTO {live} (id, slot, seq, fence, expires_at, order_key, dedup_key, type, headers, body)
  VALUES (new_id, hash % slots, new_seq, new_seq, (extract(epoch FROM statement_timestamp() + $6) * 1000)::bigint, nullif($2, ''), nullif($3, ''), nullif($8, ''), convert_to($4, 'UTF8'), coalesce($7, convert_to($1, 'UTF8')));
  RETURN new_id;
END
{$}`

	asOwner = `SECURITY DEFINER SET search_path = pg_catalog, pg_temp`

	// sendRightsText revokes the permission that every role has on a new function. Until then every role could call it;
	// permissions that were granted to named roles stay.
	sendRightsText = `REVOKE ALL ON FUNCTION {send} FROM PUBLIC`
)

func (dialect) View(n sqlbatch.Names) []string {
	r := newRenderer(n)
	parts, lane, order := priorities, "(q.priority, q.due_at) >= (p.priority, 0) AND q.priority <= p.priority ORDER BY q.priority, q.due_at, uuid_send(q.id) LIMIT 1000", ""
	if r.ordered {
		parts, lane, order = "(SELECT 1) AS p", behindNumber("0::bigint")+" ORDER BY q.seq LIMIT 1000", " m.slot, m.seq, m.order_key,"
	}
	text := strings.NewReplacer(
		"{view parts}", parts, "{view lane}", lane, "{view order}", order,
		"{text of headers}", textOf("m.headers"), "{text of body}", textOf("m.body"),
	)
	return []string{r.Replace(text.Replace(viewText))}
}

func (dialect) Procedures(n sqlbatch.Names) []string {
	r := newRenderer(n)
	send := sendText
	if r.ordered {
		send = sendOrderedText
	}
	return []string{r.Replace(send), r.Replace(sendRightsText)}
}
