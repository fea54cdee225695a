package base_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/base"
)

func TestErrorsThatDifferInVariablePartsHaveOneFingerprint(t *testing.T) {
	for _, group := range [][]string{
		{"order 7 has no customer", "order 8 has no customer", "order 404 has no customer"},
		{"order:17 not found", "order:18 not found", "order:404 not found"},
		{"user_id=500 is unknown", "user_id=7 is unknown"},
		{"GET /orders/404: gone", "GET /orders/12: gone"},
		{`no file "a.txt"`, `no file "b c.txt"`, `no file "x:80"`, `no file ""`},
		{"no table 'a'", "no table 'b'"},
		{"user 0199c0de-0000-7000-8000-000000000000 is gone", "user FFFFFFFF-0000-7000-8000-00000000000a is gone"},
		{"commit deadbeef00 is unknown", "commit 0xDEADBEEF is unknown", "commit 12345678 is unknown"},
		{"request req_dbedccae failed", "request req_1bedc2ae failed", "request req_12345678 failed"},
		{"job123456 failed", "job654321 failed"},
		{"charge 3Nf8s7dKqP21xZtY is void", "charge 9aB8s7dKqP21xZtQ is void"},
		{"dial tcp 10.0.0.1:5432: refused", "dial tcp 192.168.10.20:5432: refused"},
		{"dial tcp [::1]:5432: refused", "dial tcp [::2]:5432: refused"},
		{"read 10.0.0.1:49152: reset", "read 10.0.0.1:51311: reset"},
		{"no answer in 5s", "no answer in 1m30.503s", "no answer in 250ms"},
		{"1.503 MB are too many", "1,200.5 MB are too many"},
		{"at 2026-11-28T10:02:11Z", "at 2027-01-01T23:59:00Z"},
		{"panic in f(0x5, 0xa)", "panic in f(0x1f, 0xb)"},
		{"a bad face", "a bad face"},
	} {
		first := base.Fingerprint(group[0])
		require.EqualValues(t, 2, first>>56, "the rule")
		for _, text := range group {
			require.Equal(t, first, base.Fingerprint(text), text)
		}
	}
	require.Zero(t, base.Fingerprint(""), "no error")
}

func TestErrorsOfDifferentKindsHaveDifferentFingerprints(t *testing.T) {
	seen := map[int64]string{}
	for _, text := range []string{
		"order not found", "user not found", "order 17 not found", "a cafe", "a face",
		"POST https://pay.example/charge/12: 500 Internal", "POST https://pay.example/charge/13: 404 Internal",
		"returned 503", "returned 404", "got 429", "HTTP/1.1 500", "HTTP/1.1 502", "status=500", "status=404",
		"550 no such mailbox", "421 no such mailbox",
		"dial tcp 10.0.0.1:5432: connection refused", "dial tcp 10.0.0.1:6379: connection refused",
		"dial tcp db.internal:5432: connection refused", "dial tcp localhost:6379: connection refused",
		"x509: certificate has expired", "x500: certificate has expired", "S3: denied", "S4: denied",
		"sha256 mismatch", "sha512 mismatch", "oauth2: token expired", "oauth1: token expired",
		"E11000 duplicate key", "E11001 duplicate key",
		"ERROR: deadlock detected (SQLSTATE 40P01)", "ERROR: deadlock detected (SQLSTATE 40P02)",
		"ERROR: duplicate key (SQLSTATE 23505)", "ERROR: duplicate key (SQLSTATE 23503)",
		"SQLSTATE[23000]", "SQLSTATE[22001]",
	} {
		f := base.Fingerprint(text)
		require.Empty(t, seen[f], text)
		seen[f] = text
	}
}
