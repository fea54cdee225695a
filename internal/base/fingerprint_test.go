package base_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/base"
)

func TestErrorsThatDifferInVariablePartsHaveOneFingerprint(t *testing.T) {
	for _, group := range [][]string{
		{"order 17 not found", "order 18 not found", "order 123456 not found"},
		{`no file "a.txt"`, `no file "b c.txt"`, `no file ""`},
		{"no table 'a'", "no table 'b'"},
		{"user 0199c0de-0000-7000-8000-000000000000 is gone", "user FFFFFFFF-0000-7000-8000-00000000000a is gone"},
		{"commit deadbeef00 is unknown", "commit 0xDEADBEEF is unknown", "commit 12345678 is unknown"},
		{"dial tcp 10.0.0.1:5432: refused", "dial tcp 192.168.10.20:80: refused"},
		{"panic in f(0x5, 0xa)", "panic in f(0x1f, 0xb)"},
		{"a bad face", "a bad face"},
	} {
		first := base.Fingerprint(group[0])
		require.EqualValues(t, 1, first>>56, "the rule")
		for _, text := range group {
			require.Equal(t, first, base.Fingerprint(text), text)
		}
	}
	require.NotEqual(t, base.Fingerprint("order not found"), base.Fingerprint("user not found"))
	require.NotEqual(t, base.Fingerprint("order 17 not found"), base.Fingerprint("order not found"))
	require.NotEqual(t, base.Fingerprint("a cafe"), base.Fingerprint("a face"), "short words are not numbers")
	require.Zero(t, base.Fingerprint(""), "no error")
}
