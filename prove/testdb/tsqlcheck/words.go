package tsqlcheck

import "strings"

// spell returns how a kind of the parser's tree is written; chanq does not use kinds that are not listed.
func spell(words map[string]string, kind string) string {
	word, ok := words[kind]
	if !ok {
		fail("unknown word or option %q", kind)
	}
	return word
}

func onOff(on bool) string {
	if on {
		return "ON"
	}
	return "OFF"
}

var (
	predicateSets = map[string]string{
		"NoCount, XactAbort": "NOCOUNT, XACT_ABORT", "XactAbort": "XACT_ABORT", "QuotedIdentifier": "QUOTED_IDENTIFIER",
		"ImplicitTransactions": "IMPLICIT_TRANSACTIONS",
	}
	levels           = map[string]string{"ReadCommitted": "READ COMMITTED"}
	assignments      = map[string]string{"Equals": "="}
	durability       = map[string]string{"": "", "NotSet": "", "On": "WITH (DELAYED_DURABILITY = ON)"}
	escalations      = map[string]string{"Disable": "DISABLE"}
	queryHints       = map[string]string{"LoopJoin": "LOOP JOIN", "ForceOrder": "FORCE ORDER", "KeepFixedPlan": "KEEPFIXED PLAN"}
	setOperators     = map[string]string{"Union": "UNION"}
	unqualifiedJoins = map[string]string{"CrossJoin": "CROSS JOIN", "CrossApply": "CROSS APPLY"}
	sortOrders       = map[string]string{"": "", "NotSpecified": "", "Descending": "DESC"}
	connectives      = map[string]string{"And": "AND", "Or": "OR"}
	comparisons      = map[string]string{
		"Equals": "=", "LessThan": "<", "GreaterThan": ">", "LessThanOrEqualTo": "<=", "GreaterThanOrEqualTo": ">=",
		"NotEqualToBrackets": "<>",
	}
	signs           = map[string]string{"Negative": "-"}
	operators       = map[string]string{"Add": "+", "Subtract": "-", "Multiply": "*", "Divide": "/", "Modulo": "%"}
	indexOptions    = map[string]string{"StatisticsNoRecompute": "STATISTICS_NORECOMPUTE", "AllowPageLocks": "ALLOW_PAGE_LOCKS"}
	sequenceOptions = map[string]string{
		"Start": "START WITH", "Increment": "INCREMENT BY", "MinValue": "MINVALUE", "MaxValue": "MAXVALUE", "Cache": "CACHE",
	}
	hintNames = map[string]string{
		"Rowlock": "ROWLOCK", "TabLock": "TABLOCK", "TabLockX": "TABLOCKX", "HoldLock": "HOLDLOCK", "UpdLock": "UPDLOCK", "XLock": "XLOCK", "ReadPast": "READPAST",
		"ReadCommittedLock": "READCOMMITTEDLOCK", "ReadUncommitted": "READUNCOMMITTED", "Serializable": "SERIALIZABLE",
	}
)

// limit is the range of a type's length.
type limit struct {
	low, high int
	max       bool
}

var types = map[string]limit{
	"bit": {}, "smallint": {}, "int": {}, "bigint": {},
	"binary": {1, 8000, false}, "varbinary": {1, 8000, true},
	"varchar": {1, 8000, true}, "nvarchar": {1, 4000, true},
	"datetime2": {0, 7, false},
}

// functions, by their count of arguments.
var functions = map[string]int{
	"SYSUTCDATETIME": 0, "DATEADD": 3, "DATEDIFF_BIG": 3, "DATALENGTH": 1, "SUBSTRING": 3, "CHECKSUM": 1,
	"COUNT_BIG": 1, "COUNT": 1, "MIN": 1, "MAX": 1, "OBJECT_ID": 2, "DB_NAME": 0, "SCHEMA_ID": 1, "INDEXPROPERTY": 3, "HAS_PERMS_BY_NAME": 3,
	"NEWID": 0, "DB_ID": 0, "COL_LENGTH": 2, "ERROR_NUMBER": 0,
	"CONCAT": 9, // of 2 to 254
}

// procedures, by their parameters.
var procedures = map[string][]string{
	"sp_getapplock":     {"@Resource", "@LockMode", "@LockOwner", "@LockTimeout", "@DbPrincipal"},
	"sp_releaseapplock": {"@Resource", "@LockOwner", "@DbPrincipal"},
}

var dateParts = []string{"day", "millisecond"}

// reserved has the words that cannot be names: from Transact-SQL's list those that a typing error could use as one.
var reserved = words(`ADD ALL ALTER AND ANY AS ASC BEGIN BETWEEN BY CASE CHECK CLUSTERED COLLATE COLUMN COMMIT
CONSTRAINT CONVERT CREATE CROSS DECLARE DEFAULT DELETE DESC DISTINCT DROP ELSE END EXEC EXECUTE EXISTS FOR FOREIGN
FROM FULL GROUP HAVING IF IN INDEX INNER INSERT INTO IS JOIN KEY LEFT LIKE MERGE NONCLUSTERED NOT NULL OF OFF ON
OPTION OR ORDER OUTER OVER PERCENT PRIMARY PROCEDURE RETURN RIGHT ROLLBACK ROWCOUNT SELECT SET TABLE THEN TO TOP
TRAN TRANSACTION UNION UNIQUE UPDATE VALUES WAITFOR WHEN WHERE WHILE WITH`)

func words(s string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}
