package main

import (
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// FuzzDSN checks that no DSN causes a panic, and that no error about a DSN contains its password,
// even if characters of the password should have been escaped.
func FuzzDSN(f *testing.F) {
	for _, c := range [][3]string{
		{"", "", "localhost?database=x"},
		{"p@ss w/rd%", "", "localhost:1433/instance?encrypt=disable"},
		{"", "%zz", "localhost"},
		{"", "x", "[::1"},
		{"", "", "localhost:notaport?dial+timeout=a"},
		{"1?encrypt=", "", "localhost"},
		{"1?port=", "#", "localhost"},
		{"12/?log=", "&", "localhost"},
		{"", "", "localhost?encrypt=a"},
		{"&", "0", "localhost"},
		{"@0 ", "", "0"},
	} {
		f.Add(c[0], c[1], c[2])
	}
	for _, c := range [][3]string{{"@", "", "localhost"}, {"@/", "/x", ""}, {"env:", "", "localhost"}} {
		f.Add(c[0], c[1], c[2])
	}
	const secret = "S3CRET-7f3a"
	f.Fuzz(func(t *testing.T, before, after, rest string) {
		if strings.Contains(before+after+rest, secret) {
			t.Skip()
		}
		password := before + secret + after
		for _, scheme := range []string{"sqlserver", "postgres", ""} {
			for _, written := range []string{password, url.QueryEscape(password), url.PathEscape(password)} {
				for _, dsn := range []string{
					scheme + "://me:" + written + "@" + rest,
					scheme + "://" + rest + "?user+id=me&password=" + written,
					"@" + scheme + "://me:" + written + "@" + rest,
					"env:" + scheme + "://me:" + written + "@" + rest,
					"host=x user=me password=" + written + " " + rest,
					"server=x;user id=me;password=" + written + ";" + rest,
					"password=" + written + ";" + rest,
				} {
					a := &app{dsn: dsn}
					if _, err := a.target(); err != nil {
						require.NotContains(t, a.clean(err), secret, dsn)
					}
				}
			}
		}
		// A well-formed password is known, and removed from the errors of a driver.
		right := url.URL{Scheme: "sqlserver", User: url.UserPassword("me", password), Host: "localhost"}
		for _, dsn := range []string{
			right.String(),
			`server=localhost;user id=me;password="` + strings.ReplaceAll(password, `"`, `""`) + `";encrypt=disable`,
			"user=me host=localhost password='" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(password) + "'",
		} {
			if strings.HasPrefix(dsn, "user=") && strings.ContainsAny(password, "\x00;") || !utf8.ValidString(dsn) {
				continue // not a password for a driver, or with a ; for any
			}
			a := &app{dsn: dsn}
			_, err := a.target()
			require.NoError(t, err, dsn)
			require.NotContains(t, a.redact("login failed: "+password+", "+url.QueryEscape(password)+", "+url.PathEscape(password)), secret)
		}
	})
}
