CREATE OR ALTER PROCEDURE [dbo].[chanq__utf8]
    @text nvarchar(201),
    @bytes varbinary(804) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @raw varbinary(402) = CONVERT(varbinary(402), @text);
    DECLARE @i int = 1;
    DECLARE @c int;
    DECLARE @d int;
    SET @bytes = 0x;
    WHILE @i < DATALENGTH(@raw)
    BEGIN
        SET @c = CONVERT(int, SUBSTRING(@raw, @i, 1)) + 256 * CONVERT(int, SUBSTRING(@raw, @i + 1, 1));
        SET @i = @i + 2;
        IF @c >= 55296 AND @c < 56320 AND @i < DATALENGTH(@raw)
        BEGIN
            SET @d = CONVERT(int, SUBSTRING(@raw, @i, 1)) + 256 * CONVERT(int, SUBSTRING(@raw, @i + 1, 1));
            IF @d >= 56320 AND @d < 57344
            BEGIN
                SET @c = 65536 + (@c - 55296) * 1024 + @d - 56320;
                SET @i = @i + 2;
            END;
        END;
        IF @c < 128
            SET @bytes = @bytes + CONVERT(binary(1), @c);
        ELSE IF @c < 2048
            SET @bytes = @bytes + CONVERT(binary(1), 192 + @c / 64) + CONVERT(binary(1), 128 + @c % 64);
        ELSE IF @c >= 55296 AND @c < 57344
            THROW 51875, N'chanq: a key has half of a surrogate pair', 1;
        ELSE IF @c < 65536
            SET @bytes = @bytes + CONVERT(binary(1), 224 + @c / 4096) + CONVERT(binary(1), 128 + @c / 64 % 64) + CONVERT(binary(1), 128 + @c % 64);
        ELSE
            SET @bytes = @bytes + CONVERT(binary(1), 240 + @c / 262144) + CONVERT(binary(1), 128 + @c / 4096 % 64) + CONVERT(binary(1), 128 + @c / 64 % 64) + CONVERT(binary(1), 128 + @c % 64);
    END;
END;
