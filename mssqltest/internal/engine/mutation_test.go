package engine

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
	"github.com/chanq/chanq/mssqltest/internal/tds"
)

var tokenPattern = regexp.MustCompile(`N?'(?:[^']|'')*'|\[[^\]]*\]|[@\w$]+|[^\s\w]`)

// mutationStep leaves out most tokens: 1 deletes each, which takes a dozen seconds. It is odd, so that opening and
// closing parentheses are equally frequent.
const mutationStep = 7

// endless matches a loop whose counter does not change.
var endless = regexp.MustCompile(`SET @p =\s+- 1;`)

// TestAMutilatedStatementIsAnErrorAndNeverACrash deletes single tokens of chanq's statements and runs the rest. The
// emulator may accept it, refuse it or return rows; afterwards the session works and nothing is locked.
func TestAMutilatedStatementIsAnErrorAndNeverACrash(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds of CPU time")
	}
	files, err := filepath.Glob("../../../sqlbatch/sqlserver/testdata/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	s := newServer(t)
	c := s.client()
	for _, f := range files {
		if strings.Contains(f, "migration-3") {
			text, err := os.ReadFile(f)
			require.NoError(t, err)
			c.exec(string(text))
		}
	}
	rollback := func() {
		c.run(t.Context(), &tds.Request{Kind: tds.Batch, Text: "IF @@TRANCOUNT > 0 ROLLBACK", Reset: true})
	}
	refused, ran := 0, 0
	for _, f := range files {
		if strings.Contains(f, "migration") || strings.Contains(f, "-512") || strings.Contains(f, "-4.") {
			continue
		}
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		head, text, ok := strings.Cut(string(data), "\n")
		require.True(t, ok)
		declaration, _ := strings.CutPrefix(head, "-- ")
		if declaration == head || !strings.HasPrefix(declaration, "@") {
			declaration = ""
		}
		if declaration == "" {
			text = string(data)
		}
		var params []p
		list, err := declarationParams(declaration)
		require.NoError(t, err, f)
		for _, q := range list {
			v, err := sampleOf(q.v.typ)
			require.NoError(t, err)
			params = append(params, p{q.v.name[1:], q.v.typ, v})
		}
		begin := func() {
			if strings.Contains(f, "drop") {
				c.exec("BEGIN TRANSACTION") // rolled back: the others need the tables
			}
		}
		// Each complete statement runs; its id might already be stored.
		begin()
		require.Contains(t, []int32{0, 2601, 2627}, c.call(text, declaration, params...).number(), f)
		rollback()
		for i, at := range tokenPattern.FindAllStringIndex(text, -1) {
			if i%mutationStep != 0 {
				continue
			}
			broken := text[:at[0]] + " " + text[at[1]:]
			if endless.MatchString(broken) {
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			begin()
			w := c.callCtx(ctx, broken, declaration, params...)
			require.NoError(t, ctx.Err(), broken)
			cancel()
			if len(w.errors) > 0 {
				refused++
			} else {
				ran++
			}
			rollback()
			require.Empty(t, s.Locks(), broken)
		}
	}
	t.Logf("%d refused, %d ran", refused, ran)
	require.Greater(t, refused, ran)
	for _, name := range []string{"chanq_orders", "chanq_orders__dead", "chanq_orders__done"} {
		checkTable(t, s.db.object("dbo", name).table)
	}
}

func sampleOf(typ sqltype.Type) (sqltype.Value, error) {
	switch {
	case isInteger(typ.Kind):
		return convert(int64(1), typeBigInt, typ, 0)
	case isBytes(typ.Kind):
		return fitBytes(make([]byte, 17), typ, false), nil // an ID and more; the mark of a message without a type
	}
	return "x", nil
}
