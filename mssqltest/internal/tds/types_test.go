package tds_test

import (
	"context"
	"database/sql"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/golang-sql/civil"
	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
	"github.com/chanq/chanq/mssqltest/internal/tds"
)

// The driver sends each value as a parameter; the server returns it in a column of the type that the driver declared.
func TestParametersComeBackAsTheyWereSent(t *testing.T) {
	var got tds.Param
	h := &fakeHandler{run: func(ctx context.Context, r *tds.Request, w tds.Results) error {
		got = r.Params[2]
		return echo(2)(ctx, r, w)
	}}
	db := open(t, serve(t, h, tds.Options{}))

	kind := func(k sqltype.Kind) sqltype.Type { return sqltype.Type{Kind: k} }
	sized := func(k sqltype.Kind, n int) sqltype.Type { return sqltype.Type{Kind: k, Size: n} }
	scaled := func(k sqltype.Kind, n uint8) sqltype.Type { return sqltype.Type{Kind: k, Scale: n} }
	instant := time.Date(2024, 2, 29, 23, 59, 59, 123456700, time.UTC)
	abroad := instant.In(time.FixedZone("", -(3*60+30)*60))
	guid := mssql.UniqueIdentifier{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	guidOnWire := sqltype.GUID{0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	long := strings.Repeat("långt €😀", 1000) // 9 UTF-16 units each: more than 4000

	for name, c := range map[string]struct {
		sent     any
		declared sqltype.Type
		value    sqltype.Value
		back     any
	}{
		"int64":               {int64(math.MinInt64), kind(sqltype.BigInt), int64(math.MinInt64), int64(math.MinInt64)},
		"int32":               {int32(-7), kind(sqltype.Int), int64(-7), int64(-7)},
		"int16":               {int16(math.MaxInt16), kind(sqltype.SmallInt), int64(math.MaxInt16), int64(math.MaxInt16)},
		"tinyint":             {byte(255), kind(sqltype.TinyInt), int64(255), int64(255)},
		"null bigint":         {sql.NullInt64{}, kind(sqltype.BigInt), nil, nil},
		"null int":            {sql.NullInt32{}, kind(sqltype.Int), nil, nil},
		"null tinyint":        {sql.NullByte{}, kind(sqltype.TinyInt), nil, nil},
		"true":                {true, kind(sqltype.Bit), true, true},
		"false":               {false, kind(sqltype.Bit), false, false},
		"null bit":            {sql.NullBool{}, kind(sqltype.Bit), nil, nil},
		"float64":             {math.Pi, kind(sqltype.Float), math.Pi, math.Pi},
		"float32":             {float32(0.5), kind(sqltype.Float), 0.5, 0.5},
		"null float":          {sql.NullFloat64{}, kind(sqltype.Float), nil, nil},
		"untyped null":        {nil, sized(sqltype.NVarChar, 1), nil, nil},
		"text":                {"smörgås", sized(sqltype.NVarChar, 7), "smörgås", "smörgås"},
		"text beyond the BMP": {"a😀b", sized(sqltype.NVarChar, 4), "a😀b", "a😀b"},
		"empty text":          {"", sized(sqltype.NVarChar, sqltype.Max), "", ""},
		"long text":           {long, sized(sqltype.NVarChar, sqltype.Max), long, long},
		"null text":           {sql.NullString{}, sized(sqltype.NVarChar, 4000), nil, nil},
		"text (max)":          {mssql.NVarCharMax("max"), sized(sqltype.NVarChar, sqltype.Max), "max", "max"},
		"nchar":               {mssql.NChar("fixed"), sized(sqltype.NChar, 5), "fixed", "fixed"},
		"varchar":             {mssql.VarChar("plain"), sized(sqltype.VarChar, 5), "plain", "plain"},
		"varchar (max)":       {mssql.VarCharMax(strings.Repeat("x", 9000)), sized(sqltype.VarChar, sqltype.Max), strings.Repeat("x", 9000), strings.Repeat("x", 9000)},
		"bytes":               {[]byte{0, 1, 254, 255}, sized(sqltype.VarBinary, 4), []byte{0, 1, 254, 255}, []byte{0, 1, 254, 255}},
		"8000 bytes":          {make([]byte, 8000), sized(sqltype.VarBinary, 8000), make([]byte, 8000), make([]byte, 8000)},
		"8001 bytes":          {make([]byte, 8001), sized(sqltype.VarBinary, sqltype.Max), make([]byte, 8001), make([]byte, 8001)},
		"a mebibyte":          {make([]byte, 1<<20), sized(sqltype.VarBinary, sqltype.Max), make([]byte, 1<<20), make([]byte, 1<<20)},
		"no bytes":            {[]byte{}, sized(sqltype.VarBinary, sqltype.Max), []byte{}, []byte{}},
		"null bytes":          {[]byte(nil), sized(sqltype.VarBinary, sqltype.Max), nil, nil},
		"uniqueidentifier":    {guid, kind(sqltype.UniqueIdentifier), guidOnWire, guidOnWire[:]},
		"date":                {civil.Date{Year: 9999, Month: 12, Day: 31}, kind(sqltype.Date), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)},
		"time":                {civil.Time{Hour: 23, Minute: 59, Second: 59, Nanosecond: 999999900}, scaled(sqltype.Time, 7), time.Date(1, 1, 1, 23, 59, 59, 999999900, time.UTC), time.Date(1, 1, 1, 23, 59, 59, 999999900, time.UTC)},
		"datetime2":           {civil.DateTimeOf(instant), scaled(sqltype.DateTime2, 7), instant, instant},
		"datetime2 of year 1": {civil.DateTimeOf(time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)), scaled(sqltype.DateTime2, 7), time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)},
		"datetimeoffset":      {abroad, scaled(sqltype.DateTimeOffset, 7), abroad, abroad},
		"datetime":            {mssql.DateTime1(time.Date(1999, 1, 1, 12, 0, 0, 7e6, time.UTC)), kind(sqltype.DateTime), time.Date(1999, 1, 1, 12, 0, 0, 7e6, time.UTC), time.Date(1999, 1, 1, 12, 0, 0, 7e6, time.UTC)},
		"null date":           {mssql.NullDate{}, kind(sqltype.Date), nil, nil},
		"null time":           {mssql.NullTime{}, scaled(sqltype.Time, 7), nil, nil},
		"null datetime2":      {mssql.NullDateTime{}, scaled(sqltype.DateTime2, 7), nil, nil},
		"null datetimeoffset": {sql.NullTime{}, scaled(sqltype.DateTimeOffset, 7), nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var back any
			require.NoError(t, queryOne(within(t), db, &back, "select @p1", c.sent))
			require.Equal(t, "@p1", got.Name)
			require.Equal(t, c.declared, got.Type)
			requireSameValue(t, c.value, got.Value)
			requireSameValue(t, c.back, back)
		})
	}
}

// requireSameValue compares instants by their values, not by the pointers of their zones.
func requireSameValue(t *testing.T, want, got any) {
	t.Helper()
	if w, ok := want.(time.Time); ok {
		g, ok := got.(time.Time)
		require.True(t, ok, "%v is a time", got)
		require.Equal(t, w.Format(time.RFC3339Nano), g.Format(time.RFC3339Nano))
		return
	}
	require.Equal(t, want, got)
}

// queryOne reads the only value of a query to the end of its answer, unlike QueryRow.
func queryOne(ctx context.Context, db *sql.DB, to *any, query string, args ...any) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(to); err != nil {
			return err
		}
	}
	return rows.Err()
}

func TestResultsOfEveryTypeReachTheDriver(t *testing.T) {
	instant := time.Date(2024, 2, 29, 13, 14, 15, 123456700, time.UTC)
	cut := func(d time.Duration) time.Time { return instant.Truncate(d) }
	long := strings.Repeat("0123456789", 2000)
	for name, c := range map[string]struct {
		t     sqltype.Type
		value sqltype.Value
		back  any
	}{
		"bit":                {sqltype.Type{Kind: sqltype.Bit}, true, true},
		"tinyint":            {sqltype.Type{Kind: sqltype.TinyInt}, int64(200), int64(200)},
		"smallint":           {sqltype.Type{Kind: sqltype.SmallInt}, int64(-200), int64(-200)},
		"int":                {sqltype.Type{Kind: sqltype.Int}, int64(math.MinInt32), int64(math.MinInt32)},
		"bigint":             {sqltype.Type{Kind: sqltype.BigInt}, int64(math.MaxInt64), int64(math.MaxInt64)},
		"float":              {sqltype.Type{Kind: sqltype.Float}, -0.1, -0.1},
		"decimal":            {sqltype.Type{Kind: sqltype.Decimal, Precision: 38, Scale: 10}, big.NewRat(-7, 4), []byte("-1.7500000000")},
		"decimal zero":       {sqltype.Type{Kind: sqltype.Decimal, Precision: 5, Scale: 0}, big.NewRat(0, 1), []byte("0")},
		"decimal rounded":    {sqltype.Type{Kind: sqltype.Decimal, Precision: 9, Scale: 2}, big.NewRat(2, 3), []byte("0.67")},
		"char":               {sqltype.Type{Kind: sqltype.Char, Size: 5}, "ab   ", "ab   "},
		"varchar":            {sqltype.Type{Kind: sqltype.VarChar, Size: 10}, "é€œ", "é€œ"},
		"varchar, unknown":   {sqltype.Type{Kind: sqltype.VarChar, Size: 10}, "aЖ", "a?"},
		"varchar empty":      {sqltype.Type{Kind: sqltype.VarChar, Size: 10}, "", ""},
		"varchar (max)":      {sqltype.Type{Kind: sqltype.VarChar, Size: sqltype.Max}, long, long},
		"nchar":              {sqltype.Type{Kind: sqltype.NChar, Size: 3}, "Ж  ", "Ж  "},
		"nvarchar":           {sqltype.Type{Kind: sqltype.NVarChar, Size: 4000}, "Жук 😀", "Жук 😀"},
		"nvarchar (max)":     {sqltype.Type{Kind: sqltype.NVarChar, Size: sqltype.Max}, long, long},
		"nvarchar, 5000":     {sqltype.Type{Kind: sqltype.NVarChar, Size: 5000}, "x", "x"},
		"binary":             {sqltype.Type{Kind: sqltype.Binary, Size: 3}, []byte{1, 2, 3}, []byte{1, 2, 3}},
		"varbinary":          {sqltype.Type{Kind: sqltype.VarBinary, Size: 8000}, []byte{9}, []byte{9}},
		"varbinary empty":    {sqltype.Type{Kind: sqltype.VarBinary, Size: 8000}, []byte{}, []byte{}},
		"varbinary (max)":    {sqltype.Type{Kind: sqltype.VarBinary, Size: sqltype.Max}, []byte(long), []byte(long)},
		"max, empty":         {sqltype.Type{Kind: sqltype.VarBinary, Size: sqltype.Max}, []byte{}, []byte{}},
		"date":               {sqltype.Type{Kind: sqltype.Date}, cut(24 * time.Hour), cut(24 * time.Hour)},
		"time(0)":            {sqltype.Type{Kind: sqltype.Time}, instant, time.Date(1, 1, 1, 13, 14, 15, 0, time.UTC)},
		"time(4)":            {sqltype.Type{Kind: sqltype.Time, Scale: 4}, instant, time.Date(1, 1, 1, 13, 14, 15, 123400000, time.UTC)},
		"datetime":           {sqltype.Type{Kind: sqltype.DateTime}, instant, time.Date(2024, 2, 29, 13, 14, 15, 123e6, time.UTC)},
		"datetime, midnight": {sqltype.Type{Kind: sqltype.DateTime}, time.Date(2024, 2, 29, 23, 59, 59, 999e6, time.UTC), time.Date(2024, 3, 1, 0, 0, 0, 0, time.UTC)},
		"smalldatetime":      {sqltype.Type{Kind: sqltype.SmallDateTime}, instant, cut(time.Minute)},
		"datetime2(0)":       {sqltype.Type{Kind: sqltype.DateTime2}, instant, cut(time.Second)},
		"datetime2(3)":       {sqltype.Type{Kind: sqltype.DateTime2, Scale: 3}, instant, cut(time.Millisecond)},
		"datetime2(7)":       {sqltype.Type{Kind: sqltype.DateTime2, Scale: 7}, instant, instant},
		"datetimeoffset(3)":  {sqltype.Type{Kind: sqltype.DateTimeOffset, Scale: 3}, cut(time.Millisecond).In(time.FixedZone("", 14*3600)), cut(time.Millisecond).In(time.FixedZone("", 14*3600))},
		"uniqueidentifier":   {sqltype.Type{Kind: sqltype.UniqueIdentifier}, sqltype.GUID{1, 2, 3}, []byte{1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		"xml":                {sqltype.Type{Kind: sqltype.XML}, "<a>å</a>", "<a>å</a>"},
	} {
		t.Run(name, func(t *testing.T) {
			column := sqltype.Column{Name: "v", Type: c.t, Nullable: true}
			// NULL is sent in both forms of a row: alone it is shorter as ROW, and
			// among others as NBCROW.
			h := &fakeHandler{run: answer(columns(column), row(c.value), row(nil), counted(2),
				columns(column, column, column, column), row(nil, c.value, nil, nil), counted(1),
				columns(column, sqltype.Column{Name: "n", Type: c.t}, column), row(nil, c.value, c.value), row(c.value, c.value, nil), counted(2))}
			db := open(t, serve(t, h, tds.Options{}))
			rows, err := db.QueryContext(within(t), "select v")
			require.NoError(t, err)
			defer rows.Close()
			var v [4]any
			require.True(t, rows.Next(), "%v", rows.Err())
			require.NoError(t, rows.Scan(&v[0]))
			requireSameValue(t, c.back, v[0])
			require.True(t, rows.Next(), "%v", rows.Err())
			require.NoError(t, rows.Scan(&v[0]))
			require.Nil(t, v[0])
			require.False(t, rows.Next())
			require.True(t, rows.NextResultSet(), "%v", rows.Err())
			require.True(t, rows.Next(), "%v", rows.Err())
			require.NoError(t, rows.Scan(&v[0], &v[1], &v[2], &v[3]))
			requireSameValue(t, c.back, v[1])
			require.Equal(t, []any{nil, nil, nil}, []any{v[0], v[2], v[3]})
			require.False(t, rows.Next())
			require.True(t, rows.NextResultSet(), "NOT NULL: %v", rows.Err())
			for _, null := range []int{0, 2} {
				require.True(t, rows.Next(), "%v", rows.Err())
				require.NoError(t, rows.Scan(&v[0], &v[1], &v[2]))
				requireSameValue(t, c.back, v[1])
				requireSameValue(t, c.back, v[2-null])
				require.Nil(t, v[null])
			}
			require.False(t, rows.Next())
			require.NoError(t, rows.Err())
		})
	}
}

func TestColumnsDescribeThemselves(t *testing.T) {
	h := &fakeHandler{run: answer(columns(
		sqltype.Column{Name: "id", Type: sqltype.Type{Kind: sqltype.Binary, Size: 16}},
		sqltype.Column{Name: "prix €", Type: sqltype.Type{Kind: sqltype.Decimal, Precision: 12, Scale: 3}, Nullable: true},
		sqltype.Column{Name: "body", Type: sqltype.Type{Kind: sqltype.NVarChar, Size: 20}, Nullable: true},
	), counted(0))}
	db := open(t, serve(t, h, tds.Options{}))
	rows, err := db.QueryContext(within(t), "select id")
	require.NoError(t, err)
	defer rows.Close()
	types, err := rows.ColumnTypes()
	require.NoError(t, err)
	require.Equal(t, "id", types[0].Name())
	require.Equal(t, "BINARY", types[0].DatabaseTypeName())
	nullable, ok := types[0].Nullable()
	require.True(t, ok)
	require.False(t, nullable)
	require.Equal(t, "prix €", types[1].Name())
	precision, scale, ok := types[1].DecimalSize()
	require.True(t, ok)
	require.Equal(t, []int64{12, 3}, []int64{precision, scale})
	length, ok := types[2].Length()
	require.True(t, ok)
	require.Equal(t, int64(20), length)
	nullable, _ = types[2].Nullable()
	require.True(t, nullable)
}

func TestAValueThatDoesNotFitItsColumnIsAFaultOfTheSession(t *testing.T) {
	for name, part := range map[string][]func(tds.Results) error{
		"type":      {columns(intColumn("n")), row("text")},
		"range":     {columns(intColumn("n")), row(int64(1) << 31)},
		"length":    {columns(sqltype.Column{Type: sqltype.Type{Kind: sqltype.VarBinary, Size: 2}}), row([]byte{1, 2, 3})},
		"number":    {columns(intColumn("n")), row(int64(1), int64(2))},
		"precision": {columns(sqltype.Column{Type: sqltype.Type{Kind: sqltype.Decimal, Precision: 3, Scale: 1}}), row(big.NewRat(100, 1))},
		"column":    {columns(sqltype.Column{})},
	} {
		t.Run(name, func(t *testing.T) {
			db := open(t, serve(t, &fakeHandler{run: answer(part...)}, tds.Options{}))
			_, err := db.ExecContext(within(t), "select 1")
			require.ErrorAs(t, err, new(mssql.ServerError))
			require.Contains(t, mssqlError(t, err).Message, "The emulator failed: tds:")
		})
	}
}
