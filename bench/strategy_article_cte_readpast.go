package main

// cteReadpast updates the first ready row, chosen by a common table expression, and deletes it when
// its work is done. If a worker dies, its message stays taken permanently. The article's table has
// no index, so each take sorts and each delete reads the whole table.
var cteReadpast = article{name: "cte-readpast", without: "redelivery: after a crash a message stays taken; an index", on: map[string]articleMethod{
	"sqlserver": {
		make: []string{`CREATE TABLE {}_Queue (
  Id int IDENTITY(1,1) NOT NULL,
  Status tinyint NOT NULL,
  [Message] varbinary(max))`},
		drop:    []string{`DROP TABLE {}_Queue`},
		enqueue: `INSERT INTO {}_Queue (Status, [Message]) VALUES (1, @p1)`,
		take: takeAndDelete(`WITH NextMessage AS (
  SELECT TOP 1 * FROM {}_Queue WITH (ROWLOCK READPAST) WHERE Status = 1 ORDER BY Id
)
UPDATE NextMessage SET Status = 2 OUTPUT inserted.Id, inserted.[Message]`,
			`DELETE FROM {}_Queue WHERE Status = 2 AND Id = @p1`),
	},
	"postgres": {
		make: []string{`CREATE TABLE {}_queue (
  id integer GENERATED ALWAYS AS IDENTITY,
  status smallint NOT NULL,
  message bytea)`},
		enqueue: `INSERT INTO {}_queue (status, message) VALUES (1, $1)`,
		take: takeAndDelete(`WITH next_message AS (
  SELECT ctid FROM {}_queue WHERE status = 1 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
)
UPDATE {}_queue AS q SET status = 2 FROM next_message AS n WHERE q.ctid = n.ctid RETURNING q.id, q.message`,
			`DELETE FROM {}_queue WHERE status = 2 AND id = $1`),
	},
}}

func takeAndDelete(take, finish string) func(*articleSession, int) (int, error) {
	return func(s *articleSession, _ int) (int, error) {
		ids, err := s.query(take)
		if err != nil || len(ids) == 0 {
			return 0, err
		}
		return len(ids), s.exec(finish, ids[0])
	}
}
