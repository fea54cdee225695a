package chanqweb

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestACauseIsWhatErrorsHaveInCommon(t *testing.T) {
	for _, same := range []struct {
		cause  string
		errors []string
	}{
		{"no cause was given", []string{"", "  \n"}},
		{"order … is unknown", []string{"order 7 is unknown", "order 0199c0de-0000-7000-8000-000000000000 is unknown", "order\t4bf92f3577b34da6 is unknown ", `order "a b" is unknown`, "order 'x' is unknown"}},
		{"dial tcp …: connect: connection refused", []string{"dial tcp 10.0.0.1:25: connect: connection refused", "dial tcp 10.20.30.40:5432: connect: connection refused"}},
		{"index out of range […] with length …", []string{"index out of range [3] with length 3", "index out of range [17] with length 9\n\ngoroutine 1 [running]:"}},
		{"550 … user … is unknown", []string{"550 5.1.1 user 1001 is unknown", "550 5.7.1 user 9 is unknown"}},
		{"GET …: status 404", []string{`GET "/a": status 404`, `GET "/b": status 404`}},
		{"… retries of user…", []string{"17 retries of user41", "3 retries of user7"}},
		{"HTTP/1.1 503 for …", []string{"HTTP/1.1 503 for 17", "HTTP/1.1 503 for 'a'"}},
		{"mssql: error 1205 on …", []string{"mssql: error 1205 on 17", "mssql: error 1205 on 0xFF00"}},
		{"SQLSTATE 40P01", []string{"SQLSTATE 40P01"}},
		{"GET …: status 503", []string{`GET "/a": status 503`}},
		{"it isn't there, and can't be", []string{"it isn't there, and can't be"}},
		{`hidden \u202e`, []string{"hidden \u202e"}},
		{"decade and facade", []string{"decade and facade"}},
	} {
		for _, text := range same.errors {
			require.Equal(t, same.cause, causeOf(text), text)
		}
	}
}

func FuzzCauseOf(f *testing.F) {
	f.Add("dial tcp 10.0.0.1:25: 'x' isn't \"y\" 0xff")
	f.Fuzz(func(t *testing.T, text string) {
		cause := causeOf(text)
		require.NotEmpty(t, cause)
		require.True(t, utf8.ValidString(cause))
		require.NotContains(t, cause, "\n")
		require.False(t, strings.ContainsFunc(cause, concealed))
		require.Less(t, len(cause), 20*mostOfCause)
	})
}

func BenchmarkCauseOf(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		causeOf("dial tcp 10.20.30.40:5432: order 'x' of user 12345 is unknown")
	}
}
