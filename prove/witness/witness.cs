// Reads T-SQL with Microsoft's parsers of SQL Server 2016, 2017 and 2019, and binds statements in its model of 2016, 2017, 2019 and Azure SQL.
//
//   witness parse FOLDER    each file is a batch
//   witness bind FOLDER     files whose names begin with ddl- define tables, views and procedures; each other one is a statement
//
// A line that begins with ERROR is an error; the last line counts.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text.RegularExpressions;
using Microsoft.SqlServer.Dac;
using Microsoft.SqlServer.Dac.Model;
using Microsoft.SqlServer.TransactSql.ScriptDom;

static class Witness {
    static int errors, asked;

    static void Report(string file, string what) {
        errors++;
        Console.WriteLine("ERROR " + Path.GetFileName(file) + ": " + Regex.Replace(what, @"\s+", " "));
    }

    static int Main(string[] args) {
        var files = Directory.GetFiles(args[1], "*.sql").OrderBy(f => f, StringComparer.Ordinal).ToArray();
        foreach (var file in files) Parse(file);
        if (args[0] == "bind")
            foreach (var version in new[] { SqlServerVersion.Sql130, SqlServerVersion.Sql140, SqlServerVersion.Sql150, SqlServerVersion.SqlAzure })
                Bind(version, files);
        Console.WriteLine(files.Length + " texts, " + asked + " answers, " + errors + " errors");
        return errors == 0 ? 0 : 1;
    }

    static void Parse(string file) {
        foreach (var parser in new TSqlParser[] { new TSql130Parser(true), new TSql140Parser(true), new TSql150Parser(true) }) {
            IList<ParseError> found;
            parser.Parse(new StringReader(File.ReadAllText(file)), out found);
            asked++;
            foreach (var e in found) Report(file, parser.GetType().Name + ", line " + e.Line + ": " + e.Number + " " + e.Message);
        }
    }

    static void Bind(SqlServerVersion version, string[] files) {
        using (var model = new TSqlModel(version, new TSqlModelOptions())) {
            foreach (var definition in Definitions(files.Where(IsDefinition))) Add(model, version, "ddl", definition);
            foreach (var file in files.Where(f => !IsDefinition(f))) {
                var text = File.ReadAllText(file);
                var declared = Regex.Match(text, @"\A-- (@[^\n]*)\n"); // the declaration of sp_executesql
                Add(model, version, file, "CREATE PROCEDURE [dbo].[" + Path.GetFileNameWithoutExtension(file) + "] " +
                    declared.Groups[1].Value + " AS BEGIN\n" + text.Substring(declared.Length) + "\nEND");
            }
            foreach (var message in model.Validate())
                if (message.MessageType == DacMessageType.Error) Report(version.ToString(), message.ToString());
        }
    }

    static bool IsDefinition(string file) { return Path.GetFileName(file).StartsWith("ddl-"); }

    static void Add(TSqlModel model, SqlServerVersion version, string file, string text) {
        asked++;
        try { model.AddObjects(text); } catch (Exception e) { Report(file, version + ": " + e.Message); }
    }

    // The statements that define something, which a migration has within IF. Of two definitions of one name the later one counts.
    static IEnumerable<string> Definitions(IEnumerable<string> files) {
        var order = new List<string>();
        var last = new Dictionary<string, string>();
        foreach (var file in files) {
            var text = File.ReadAllText(file);
            IList<ParseError> ignored; // Parse has reported them
            var visitor = new Finder();
            new TSql150Parser(true).Parse(new StringReader(text), out ignored).Accept(visitor);
            foreach (var found in visitor.Found) {
                var definition = Regex.Replace(text.Substring(found.StartOffset, found.FragmentLength), @"\ACREATE\s+OR\s+ALTER", "CREATE");
                var name = definition.Split('(', '\n')[0].Trim();
                if (!last.ContainsKey(name)) order.Add(name);
                last[name] = definition;
            }
        }
        return order.Select(name => last[name]);
    }
}

class Finder : TSqlFragmentVisitor {
    public readonly List<TSqlStatement> Found = new List<TSqlStatement>();
    public override void Visit(CreateSchemaStatement s) { Found.Add(s); }
    public override void Visit(CreateSequenceStatement s) { Found.Add(s); }
    public override void Visit(CreateTableStatement s) { Found.Add(s); }
    public override void Visit(CreateIndexStatement s) { Found.Add(s); }
    public override void Visit(AlterTableAddTableElementStatement s) { Found.Add(s); }
    public override void Visit(CreateViewStatement s) { Found.Add(s); }
    public override void Visit(CreateOrAlterViewStatement s) { Found.Add(s); }
    public override void Visit(CreateProcedureStatement s) { Found.Add(s); }
    public override void Visit(CreateOrAlterProcedureStatement s) { Found.Add(s); }
}
