package main

import (
	"cmp"
	"errors"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/jackc/pgx/v5"
	"github.com/microsoft/go-mssqldb/msdsn"

	"github.com/chanq/chanq/sqlbatch"
)

// target is what the flags name, checked and not connected to. One of its
// fields is set, or none if no database was named.
type target struct {
	file      string // SQLite
	sqlServer *msdsn.Config
	postgres  *pgx.ConnConfig
}

// dialect is nil without a database.
func (t target) dialect() sqlbatch.Dialect {
	switch {
	case t.sqlServer != nil:
		return sqlbatch.SQLServer
	case t.postgres != nil:
		return sqlbatch.Postgres
	case t.file != "":
		return sqlbatch.SQLite
	}
	return nil
}

// target reads --db, --dsn and, without them, CHANQ_DSN.
func (a *app) target(environment string) (target, error) {
	dsn, from := a.dsn, "--dsn"
	switch {
	case a.db != "" && a.dsn != "":
		return target{}, usage("--db and --dsn name two databases: give one")
	case a.db != "":
		return target{file: a.db}, nil
	case dsn == "":
		dsn, from = environment, "CHANQ_DSN"
	}
	switch scheme, _, _ := strings.Cut(dsn, "://"); {
	case dsn == "":
		return target{}, nil
	case scheme == "sqlserver" && scheme != dsn:
		return a.parseSQLServer(from, dsn)
	case (scheme == "postgres" || scheme == "postgresql") && scheme != dsn:
		return a.parsePostgres(from, dsn)
	default:
		return target{}, usage("%s must be sqlserver://user:password@host:port?database=name or postgres://user:password@host:port/database, %s", from, escaping)
	}
}

// Errors about a DSN never repeat it: a password with an unescaped character
// may be anywhere in it.
const escaping = "with special characters of the password percent-encoded"

func (a *app) parseSQLServer(from, dsn string) (target, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Host == "" {
		return target{}, usage("%s cannot be read: must be sqlserver://user:password@host:port?database=name, %s", from, escaping)
	}
	config, err := msdsn.Parse(dsn)
	a.hide(config.Password)
	a.hideIn(u)
	if err != nil {
		a.hideAll(dsn)
		return target{}, usage("%s: %w", from, err)
	}
	return target{sqlServer: &config}, nil
}

func (a *app) parsePostgres(from, dsn string) (target, error) {
	const form = "must be postgres://user:password@host:port/database, or postgres:///database?host=/directory for a Unix socket, " + escaping
	u, err := url.Parse(dsn)
	if err != nil {
		return target{}, usage("%s cannot be read: %s", from, form)
	}
	a.hideIn(u)
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		a.hideAll(dsn)
	}
	switch cause := errors.Unwrap(err); { // without its cause, pgx's error has the DSN
	case cause != nil:
		return target{}, usage("%s cannot be read: %w; %s", from, cause, form)
	case err != nil:
		return target{}, usage("%s cannot be read: %s", from, form)
	}
	a.hide(config.Password) // which the environment or a file may have given
	return target{postgres: config}, nil
}

// hideIn hides the passwords of a URL, also as they are written there.
func (a *app) hideIn(u *url.URL) {
	if password, given := u.User.Password(); given {
		a.hide(password)
	}
	for _, pair := range strings.Split(u.RawQuery, "&") {
		name, raw, _ := strings.Cut(pair, "=")
		if name, err := url.QueryUnescape(name); err != nil || !strings.HasSuffix(strings.ToLower(name), "password") {
			continue
		}
		a.hide(raw)
		if value, err := url.QueryUnescape(raw); err == nil {
			a.hide(value)
		}
	}
}

// hideAll hides every word of a DSN that could not be read, save those of the
// drivers' options: drivers repeat what they cannot read, and a part of a password
// with an unescaped character may stand anywhere.
func (a *app) hideAll(dsn string) {
	const tooShort = 4 // to be a secret: blacking it out would spoil the words of the error
	texts := strings.Split(dsn, "&")
	for _, text := range append(texts, dsn) {
		if plain, err := url.QueryUnescape(text); err == nil {
			texts = append(texts, plain)
		}
		if plain, err := url.PathUnescape(text); err == nil {
			texts = append(texts, plain)
		}
	}
	for _, text := range texts {
		for _, word := range strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			if len(word) >= tooShort && !strings.Contains(optionWords, " "+strings.ToLower(word)+" ") {
				a.secrets = append(a.secrets, word)
			}
		}
	}
	slices.SortFunc(a.secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // whole words before parts of them
}

// optionWords are the words of options that drivers name in errors.
const optionWords = " sqlserver postgres postgresql user username password database host port server instance encrypt certificate " +
	"timeout dial connection keepalive packet size application intent readonly failover partner trust tlsmin protocol multisubnetfailover " +
	"columnencryption guid conversion timezone fedauth sslmode sslcert sslkey sslrootcert disable allow prefer require verify " +
	"connect_timeout target session attrs localhost true false strict "

// hide makes redact know a password, in each form that it may have in a URL.
func (a *app) hide(secret string) {
	if secret == "" {
		return
	}
	query := url.QueryEscape(secret)
	a.secrets = append(a.secrets, secret, query, strings.ReplaceAll(query, "+", "%20"), url.PathEscape(secret))
}

// redact blacks out passwords.
func (a *app) redact(text string) string {
	for _, secret := range a.secrets {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return text
}
