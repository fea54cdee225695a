package foreign

import (
	"context"
	"database/sql"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

// Each role of the document can do what is documented, and nothing else.
func TestTheRolesOfTheDocumentMaySendAndLook(t *testing.T) {
	testdb.OnEach(t, []testdb.Engine{testdb.EmulatorSocket, testdb.Postgres}, func(w *testdb.World) {
		s := open(w.T, w.Engine)
		own := s.roles()
		made := false
		for _, b := range blocks(s.T, s.Engine.Dialect.Name()) {
			if strings.Contains(b.text, "CREATE ROLE") {
				s.Exec(own.Replace(b.text))
				made = true
			}
		}
		require.True(s, made)
		sender, writer, reader := s.as(own, "chanq_sender"), s.as(own, "chanq_writer"), s.as(own, "chanq_reader")
		call, body := "SELECT ", "'{}'"
		end := `('{"n": 1}')`
		if s.Engine.Dialect.Name() == "sqlserver" {
			call, body, end = "EXEC dbo.", "0x7B7D", ` N'{"n": 1}'`
		}
		sendOrder, sendPayment := call+"chanq_orders__send"+end, call+"chanq_payments__send"+end
		insert, look := "INSERT INTO chanq_orders (body) VALUES ("+body+")", "SELECT state FROM chanq_orders__messages"
		insertPayment := "INSERT INTO chanq_payments (body) VALUES (" + body + ")"

		sends := map[*sql.Conn][]string{sender: {sendOrder, sendPayment}, writer: {insert}, reader: nil}
		if s.Engine.Dialect.Name() == "postgres" {
			sends[writer] = append(sends[writer], insertPayment)
		}
		for conn, texts := range sends {
			was := s.waiting()
			for _, text := range texts {
				_, err := conn.ExecContext(s.Soon(), text)
				require.NoError(s, err, text)
			}
			require.Equal(s, len(texts), s.waiting()-was)
		}
		_, err := reader.ExecContext(s.Soon(), look)
		require.NoError(s, err)

		for conn, texts := range map[*sql.Conn][]string{
			sender: {insert, insertPayment, look}, writer: {sendOrder, sendPayment, look}, reader: {sendOrder, sendPayment, insert, insertPayment},
		} {
			texts = append(texts, "SELECT body FROM chanq_orders", "UPDATE chanq_orders SET attempts = 0", "DELETE FROM chanq_payments", "SELECT body FROM chanq_orders__dead")
			if s.Engine.Dialect.Name() != "postgres" && conn == writer {
				texts = append(texts, insertPayment)
			}
			for _, text := range texts {
				_, err := conn.ExecContext(s.Soon(), text)
				require.ErrorContains(s, err, "permission", text)
			}
		}
	})
}

// as returns a session with a role and no other permission.
func (s *shop) as(own *strings.Replacer, role string) *sql.Conn {
	db, become := s.DB, ""
	if s.Engine.Dialect.Name() == "sqlserver" {
		login := role + "_app"
		s.Exec("CREATE LOGIN " + login + " WITH PASSWORD = 'Pass.w0rd'; CREATE USER " + login + " FOR LOGIN " + login + "; ALTER ROLE " + role + " ADD MEMBER " + login + ";")
		address, err := url.Parse(s.Address)
		require.NoError(s, err)
		address.User = url.UserPassword(login, "Pass.w0rd")
		connector, err := s.Engine.Connect(address.String())
		require.NoError(s, err)
		db = sql.OpenDB(connector)
		s.Cleanup(func() { require.NoError(s, db.Close()) })
	} else {
		become = own.Replace("SET ROLE " + role)
	}
	conn, err := db.Conn(s.Soon())
	require.NoError(s, err)
	s.Cleanup(func() { conn.Close() })
	if become != "" {
		_, err = conn.ExecContext(s.Soon(), become)
		require.NoError(s, err)
		s.Cleanup(func() { _, _ = conn.ExecContext(context.Background(), "RESET ROLE") })
	}
	return conn
}

// No role can make the function run another function with its owner's permissions, by a name in a schema that is
// searched first.
func TestTheFunctionResolvesNamesInItsOwnSchemaOnly(t *testing.T) {
	s := open(t, testdb.Postgres)
	conn, err := s.DB.Conn(s.Soon())
	require.NoError(t, err)
	defer conn.Close()
	for _, text := range []string{
		"CREATE SCHEMA odd",
		"CREATE FUNCTION odd.convert_to(text, text) RETURNS bytea LANGUAGE sql AS $$ SELECT '\\x00'::bytea $$",
		"CREATE FUNCTION odd.gen_random_uuid() RETURNS uuid LANGUAGE sql AS $$ SELECT '00000000-0000-0000-0000-000000000000'::uuid $$",
		"SET search_path = odd, pg_catalog, public",
	} {
		_, err := conn.ExecContext(s.Soon(), text)
		require.NoError(t, err, text)
	}
	for _, q := range []string{"orders", "payments"} {
		_, err = conn.ExecContext(s.Soon(), `SELECT public.chanq_`+q+`__send('{"n": 1}')`)
		require.NoError(t, err)
	}
	for _, q := range []*chanq.Queue[order]{s.orders, s.payments} {
		entries, err := testdb.Peek(s.Soon(), q, chanqadmin.StateReady, 10)
		require.NoError(t, err)
		require.Len(t, entries, 1)
		require.JSONEq(t, `{"n": 1}`, string(entries[0].Body))
		require.NotEqual(t, make([]byte, 8), entries[0].ID[8:])
	}
}
