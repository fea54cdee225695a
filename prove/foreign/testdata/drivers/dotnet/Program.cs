// Sends CHANQ_COUNT messages by INSERT and as many by the procedure, with parameters, as an application with
// Microsoft.Data.SqlClient, Dapper or EF Core does: the first half one by one, the second half in one transaction. The
// argument says which.
using System.Data;
using System.Text;
using Dapper;
using Microsoft.Data.SqlClient;
using Microsoft.EntityFrameworkCore;

string Env(string name) => Environment.GetEnvironmentVariable(name) ?? throw new InvalidOperationException(name);

var count = int.Parse(Env("CHANQ_COUNT"));
var address = new SqlConnectionStringBuilder
{
    DataSource = $"{Env("CHANQ_HOST")},{Env("CHANQ_PORT")}", InitialCatalog = Env("CHANQ_DATABASE"),
    UserID = Env("CHANQ_USER"), Password = Env("CHANQ_PASSWORD"), Encrypt = SqlConnectionEncryptOption.Optional,
}.ConnectionString;
string Body(int n, string by) => $"{{\"n\": {n}, \"name\": \"Łódź by {by}\"}}";

const string insertText = "INSERT INTO dbo.chanq_orders (body) VALUES (CONVERT(varbinary(max), @body))";
const string procedure = "dbo.chanq_orders__send";

switch (args[0])
{
    case "sqlclient":
        using (var connection = new SqlConnection(address))
        {
            connection.Open();
            await SendAll(connection, (n, tx) =>
            {
                using var command = new SqlCommand(insertText, connection, tx);
                command.Parameters.Add("@body", SqlDbType.NVarChar, -1).Value = Body(n, "insert");
                return command.ExecuteNonQueryAsync();
            }, (n, tx) =>
            {
                using var command = new SqlCommand(procedure, connection, tx) { CommandType = CommandType.StoredProcedure };
                command.Parameters.Add("@text", SqlDbType.NVarChar, -1).Value = Body(n, "procedure");
                return command.ExecuteNonQueryAsync();
            });
        }
        break;
    case "dapper":
        using (var connection = new SqlConnection(address))
        {
            connection.Open();
            await SendAll(connection,
                (n, tx) => connection.ExecuteAsync(insertText, new { body = Body(n, "insert") }, tx),
                (n, tx) => connection.ExecuteAsync(procedure, new { text = Body(n, "procedure") }, tx,
                    commandType: CommandType.StoredProcedure));
        }
        break;
    case "ef":
        using (var shop = new Shop(address))
        {
            for (var n = 0; n < count / 2; n++)
            {
                shop.Messages.Add(new Message { Body = Encoding.UTF8.GetBytes(Body(n, "insert")) });
                await shop.SaveChangesAsync();
            }
            for (var n = count / 2; n < count; n++)
            {
                shop.Messages.Add(new Message { Body = Encoding.UTF8.GetBytes(Body(n, "insert")) });
            }
            await shop.SaveChangesAsync(); // in one transaction
            for (var n = 0; n < count / 2; n++)
            {
                await shop.Database.ExecuteSqlAsync($"EXEC dbo.chanq_orders__send @text = {Body(n, "procedure")}");
            }
            using var tx = await shop.Database.BeginTransactionAsync();
            for (var n = count / 2; n < count; n++)
            {
                await shop.Database.ExecuteSqlAsync($"EXEC dbo.chanq_orders__send @text = {Body(n, "procedure")}");
            }
            await tx.CommitAsync();
        }
        break;
    default:
        throw new ArgumentException(args[0]);
}

async Task SendAll(SqlConnection connection, params Func<int, SqlTransaction?, Task<int>>[] ways)
{
    foreach (var send in ways)
    {
        for (var n = 0; n < count / 2; n++)
        {
            await send(n, null);
        }
        using var tx = connection.BeginTransaction();
        for (var n = count / 2; n < count; n++)
        {
            await send(n, tx);
        }
        tx.Commit();
    }
}

// Message maps the columns that a sender needs. The database generates the ID.
class Message
{
    public byte[] Id { get; set; } = null!;
    public byte[] Body { get; set; } = null!;
}

class Shop(string address) : DbContext
{
    public DbSet<Message> Messages => Set<Message>();

    // A larger batch would be a MERGE, which mssqltest does not support.
    protected override void OnConfiguring(DbContextOptionsBuilder options) =>
        options.UseSqlServer(address, server => server.MaxBatchSize(1));

    protected override void OnModelCreating(ModelBuilder model) => model.Entity<Message>(message =>
    {
        message.ToTable("chanq_orders", "dbo");
        message.HasKey(m => m.Id);
        message.Property(m => m.Id).HasColumnName("id").HasColumnType("binary(16)").ValueGeneratedOnAdd();
        message.Property(m => m.Body).HasColumnName("body").HasColumnType("varbinary(max)");
    });
}
