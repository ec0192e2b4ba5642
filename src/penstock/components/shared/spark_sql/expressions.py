"""Every expression of Spark: what a query may compute with, and what it may not, with the reason.

Names are those of classes below `org.apache.spark.sql`. A class in neither table is refused; a test goes through all.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.components.shared.spark_sql import reasons
from penstock.components.shared.spark_sql.reasons import classed, names

ALLOWED = names("""
    catalyst.analysis.MultiAlias catalyst.analysis.ResolvedStar catalyst.analysis.TempResolvedColumn
    catalyst.analysis.UnresolvedAlias catalyst.analysis.UnresolvedAttribute
    catalyst.analysis.UnresolvedExtractValue catalyst.analysis.UnresolvedFunction
    catalyst.analysis.UnresolvedGenerator catalyst.analysis.UnresolvedOrdinal
    catalyst.analysis.UnresolvedPipeAggregateOrdinal catalyst.analysis.UnresolvedRegex
    catalyst.analysis.UnresolvedSeed$ catalyst.analysis.UnresolvedStar
    catalyst.analysis.UnresolvedStarExceptOrReplace catalyst.analysis.UnresolvedStarWithColumns
    catalyst.analysis.UnresolvedStarWithColumnsRenames catalyst.analysis.UnresolvedWithinGroup$
    catalyst.expressions.Abs catalyst.expressions.Acos catalyst.expressions.Acosh catalyst.expressions.Add
    catalyst.expressions.AddMonths catalyst.expressions.AesDecrypt catalyst.expressions.AesEncrypt
    catalyst.expressions.Alias catalyst.expressions.And catalyst.expressions.ApproxTopKEstimate
    catalyst.expressions.ArrayAggregate catalyst.expressions.ArrayAppend catalyst.expressions.ArrayCompact
    catalyst.expressions.ArrayContains catalyst.expressions.ArrayDistinct catalyst.expressions.ArrayExcept
    catalyst.expressions.ArrayExists catalyst.expressions.ArrayFilter catalyst.expressions.ArrayForAll
    catalyst.expressions.ArrayInsert catalyst.expressions.ArrayIntersect catalyst.expressions.ArrayJoin
    catalyst.expressions.ArrayMax catalyst.expressions.ArrayMin catalyst.expressions.ArrayPosition
    catalyst.expressions.ArrayPrepend catalyst.expressions.ArrayRemove catalyst.expressions.ArrayRepeat
    catalyst.expressions.ArraySize catalyst.expressions.ArraySort catalyst.expressions.ArrayTransform
    catalyst.expressions.ArrayUnion catalyst.expressions.ArraysOverlap catalyst.expressions.ArraysZip
    catalyst.expressions.Ascii catalyst.expressions.Asin catalyst.expressions.Asinh
    catalyst.expressions.AssertTrue catalyst.expressions.AtLeastNNonNulls catalyst.expressions.Atan
    catalyst.expressions.Atan2 catalyst.expressions.Atanh catalyst.expressions.AttributeReference
    catalyst.expressions.BRound catalyst.expressions.Base32 catalyst.expressions.Base64
    catalyst.expressions.Between catalyst.expressions.Bin catalyst.expressions.BinaryPad
    catalyst.expressions.BinaryPredicate catalyst.expressions.BitLength catalyst.expressions.BitmapAndAgg
    catalyst.expressions.BitmapBitPosition catalyst.expressions.BitmapBucketNumber
    catalyst.expressions.BitmapConstructAgg catalyst.expressions.BitmapCount catalyst.expressions.BitmapOrAgg
    catalyst.expressions.BitwiseAnd catalyst.expressions.BitwiseCount catalyst.expressions.BitwiseGet
    catalyst.expressions.BitwiseNot catalyst.expressions.BitwiseOr catalyst.expressions.BitwiseXor
    catalyst.expressions.CaseWhen catalyst.expressions.Cast catalyst.expressions.Cbrt catalyst.expressions.Ceil
    catalyst.expressions.CheckOverflow catalyst.expressions.Chr catalyst.expressions.Coalesce
    catalyst.expressions.Collate catalyst.expressions.Collation catalyst.expressions.CommonExpressionDef
    catalyst.expressions.CommonExpressionRef catalyst.expressions.Concat catalyst.expressions.ConcatWs
    catalyst.expressions.Contains catalyst.expressions.Conv catalyst.expressions.ConvertTimezone
    catalyst.expressions.Cos catalyst.expressions.Cosh catalyst.expressions.Cot catalyst.expressions.CounterDiff
    catalyst.expressions.CounterDiffWithStartTime catalyst.expressions.Crc32 catalyst.expressions.CreateArray
    catalyst.expressions.CreateMap catalyst.expressions.CreateNamedStruct catalyst.expressions.Csc
    catalyst.expressions.CsvToStructs catalyst.expressions.Cube catalyst.expressions.CumeDist
    catalyst.expressions.CurrentBatchTimestamp catalyst.expressions.CurrentDate catalyst.expressions.CurrentRow$
    catalyst.expressions.CurrentTime catalyst.expressions.CurrentTimeZone catalyst.expressions.CurrentTimestamp
    catalyst.expressions.CurrentTimestampNanos catalyst.expressions.DateAdd catalyst.expressions.DateAddInterval
    catalyst.expressions.DateAddYMInterval catalyst.expressions.DateDiff catalyst.expressions.DateFormatClass
    catalyst.expressions.DateFromUnixDate catalyst.expressions.DateSub catalyst.expressions.DatetimeSub
    catalyst.expressions.DayName catalyst.expressions.DayOfMonth catalyst.expressions.DayOfWeek
    catalyst.expressions.DayOfYear catalyst.expressions.Decode catalyst.expressions.DenseRank
    catalyst.expressions.Divide catalyst.expressions.DivideDTInterval catalyst.expressions.DivideInterval
    catalyst.expressions.DivideYMInterval catalyst.expressions.DropField catalyst.expressions.ElementAt
    catalyst.expressions.Elt catalyst.expressions.Empty2Null catalyst.expressions.Encode
    catalyst.expressions.EndsWith catalyst.expressions.EqualNull catalyst.expressions.EqualNullSafe
    catalyst.expressions.EqualTo catalyst.expressions.EulerNumber catalyst.expressions.Exists
    catalyst.expressions.Exp catalyst.expressions.Explode catalyst.expressions.Expm1
    catalyst.expressions.Extract catalyst.expressions.ExtractANSIIntervalDays
    catalyst.expressions.ExtractANSIIntervalHours catalyst.expressions.ExtractANSIIntervalMinutes
    catalyst.expressions.ExtractANSIIntervalMonths catalyst.expressions.ExtractANSIIntervalSeconds
    catalyst.expressions.ExtractANSIIntervalYears catalyst.expressions.ExtractIntervalDays
    catalyst.expressions.ExtractIntervalHours catalyst.expressions.ExtractIntervalMinutes
    catalyst.expressions.ExtractIntervalMonths catalyst.expressions.ExtractIntervalSeconds
    catalyst.expressions.ExtractIntervalYears catalyst.expressions.Factorial catalyst.expressions.FindInSet
    catalyst.expressions.Flatten catalyst.expressions.Floor catalyst.expressions.FormatNumber
    catalyst.expressions.FormatString catalyst.expressions.FromUTCTimestamp catalyst.expressions.FromUnixTime
    catalyst.expressions.GeneratorOuter catalyst.expressions.Get catalyst.expressions.GetArrayItem
    catalyst.expressions.GetArrayStructFields catalyst.expressions.GetJsonObject
    catalyst.expressions.GetMapValue catalyst.expressions.GetStructField catalyst.expressions.GetTimestamp
    catalyst.expressions.GreaterThan catalyst.expressions.GreaterThanOrEqual catalyst.expressions.Greatest
    catalyst.expressions.Grouping catalyst.expressions.GroupingID catalyst.expressions.GroupingSets
    catalyst.expressions.Hex catalyst.expressions.HllSketchEstimate catalyst.expressions.HllUnion
    catalyst.expressions.Hmac catalyst.expressions.Hour catalyst.expressions.HoursOfTime
    catalyst.expressions.Hypot catalyst.expressions.ILike catalyst.expressions.If catalyst.expressions.In
    catalyst.expressions.InSet catalyst.expressions.InSubquery catalyst.expressions.InitCap
    catalyst.expressions.Inline catalyst.expressions.IntegralDivide catalyst.expressions.IsNaN
    catalyst.expressions.IsNotNull catalyst.expressions.IsNull catalyst.expressions.IsValidUTF8
    catalyst.expressions.JaroWinkler catalyst.expressions.JsonObjectKeys catalyst.expressions.JsonTable
    catalyst.expressions.JsonToStructs catalyst.expressions.JsonTuple catalyst.expressions.KllSketchGetNBigint
    catalyst.expressions.KllSketchGetNDouble catalyst.expressions.KllSketchGetNFloat
    catalyst.expressions.KllSketchGetQuantileBigint catalyst.expressions.KllSketchGetQuantileDouble
    catalyst.expressions.KllSketchGetQuantileFloat catalyst.expressions.KllSketchGetRankBigint
    catalyst.expressions.KllSketchGetRankDouble catalyst.expressions.KllSketchGetRankFloat
    catalyst.expressions.KllSketchMergeBigint catalyst.expressions.KllSketchMergeDouble
    catalyst.expressions.KllSketchMergeFloat catalyst.expressions.KllSketchToStringBigint
    catalyst.expressions.KllSketchToStringDouble catalyst.expressions.KllSketchToStringFloat
    catalyst.expressions.KnownFloatingPointNormalized catalyst.expressions.KnownNotContainsNull
    catalyst.expressions.KnownNotNull catalyst.expressions.KnownNullable catalyst.expressions.Lag
    catalyst.expressions.LambdaFunction catalyst.expressions.LastDay
    catalyst.expressions.LateralColumnAliasReference catalyst.expressions.LateralSubquery
    catalyst.expressions.Lead catalyst.expressions.Least catalyst.expressions.Left catalyst.expressions.Length
    catalyst.expressions.LengthOfJsonArray catalyst.expressions.LessThan catalyst.expressions.LessThanOrEqual
    catalyst.expressions.Levenshtein catalyst.expressions.Like catalyst.expressions.LikeAll
    catalyst.expressions.LikeAny catalyst.expressions.ListQuery catalyst.expressions.Literal
    catalyst.expressions.LocalTimestamp catalyst.expressions.LocalTimestampNanos catalyst.expressions.Log
    catalyst.expressions.Log10 catalyst.expressions.Log1p catalyst.expressions.Log2
    catalyst.expressions.Logarithm catalyst.expressions.Lower catalyst.expressions.Luhncheck
    catalyst.expressions.MakeDTInterval catalyst.expressions.MakeDate catalyst.expressions.MakeDecimal
    catalyst.expressions.MakeInterval catalyst.expressions.MakeTime catalyst.expressions.MakeTimestamp
    catalyst.expressions.MakeTimestampFromDateTime catalyst.expressions.MakeTimestampLTZ
    catalyst.expressions.MakeTimestampLTZNanos catalyst.expressions.MakeTimestampNTZ
    catalyst.expressions.MakeTimestampNTZNanos catalyst.expressions.MakeValidUTF8
    catalyst.expressions.MakeYMInterval catalyst.expressions.MapConcat catalyst.expressions.MapContainsKey
    catalyst.expressions.MapEntries catalyst.expressions.MapFilter catalyst.expressions.MapFromArrays
    catalyst.expressions.MapFromEntries catalyst.expressions.MapKeys catalyst.expressions.MapSort
    catalyst.expressions.MapValues catalyst.expressions.MapZipWith catalyst.expressions.Mask
    catalyst.expressions.Md5 catalyst.expressions.MicrosToTimestamp catalyst.expressions.MillisToTimestamp
    catalyst.expressions.Minute catalyst.expressions.MinutesOfTime
    catalyst.expressions.MonotonicallyIncreasingID catalyst.expressions.Month catalyst.expressions.MonthName
    catalyst.expressions.MonthsBetween catalyst.expressions.MultiCommutativeOp
    catalyst.expressions.MultiGetJsonObject catalyst.expressions.Multiply
    catalyst.expressions.MultiplyDTInterval catalyst.expressions.MultiplyInterval
    catalyst.expressions.MultiplyYMInterval catalyst.expressions.Murmur3Hash catalyst.expressions.NTile
    catalyst.expressions.NaNvl catalyst.expressions.NamePlaceholder$
    catalyst.expressions.NamedArgumentExpression catalyst.expressions.NamedLambdaVariable
    catalyst.expressions.NanosToTimestamp catalyst.expressions.NextDay catalyst.expressions.Not
    catalyst.expressions.NotLikeAll catalyst.expressions.NotLikeAny catalyst.expressions.Now
    catalyst.expressions.NthValue catalyst.expressions.NullIf catalyst.expressions.NullIfResult
    catalyst.expressions.NullIfZero catalyst.expressions.Nvl catalyst.expressions.Nvl2
    catalyst.expressions.OctetLength catalyst.expressions.Or catalyst.expressions.OuterReference
    catalyst.expressions.Overlay catalyst.expressions.ParseToDate catalyst.expressions.ParseToTimestamp
    catalyst.expressions.ParseUrl catalyst.expressions.PercentRank catalyst.expressions.Pi
    catalyst.expressions.PipeExpression catalyst.expressions.Pmod catalyst.expressions.PosExplode
    catalyst.expressions.Pow catalyst.expressions.PreciseTimestampConversion
    catalyst.expressions.PrettyAttribute catalyst.expressions.Quarter catalyst.expressions.Quote
    catalyst.expressions.RLike catalyst.expressions.RaiseError catalyst.expressions.Rand
    catalyst.expressions.RandStr catalyst.expressions.Randn catalyst.expressions.Rank
    catalyst.expressions.RegExpCount catalyst.expressions.RegExpExtract catalyst.expressions.RegExpExtractAll
    catalyst.expressions.RegExpInStr catalyst.expressions.RegExpReplace catalyst.expressions.RegExpSubStr
    catalyst.expressions.Remainder catalyst.expressions.ReplicateRows catalyst.expressions.ResolvedCollation
    catalyst.expressions.Reverse catalyst.expressions.Right catalyst.expressions.Rint
    catalyst.expressions.Rollup catalyst.expressions.Round catalyst.expressions.RoundCeil
    catalyst.expressions.RoundFloor catalyst.expressions.RowNumber catalyst.expressions.ScalarSubquery
    catalyst.expressions.SchemaOfCsv catalyst.expressions.SchemaOfJson catalyst.expressions.SchemaOfXml
    catalyst.expressions.Sec catalyst.expressions.Second catalyst.expressions.SecondWithFraction
    catalyst.expressions.SecondWithFractionNanos catalyst.expressions.SecondsOfTime
    catalyst.expressions.SecondsOfTimeWithFraction catalyst.expressions.SecondsToTimestamp
    catalyst.expressions.SemiStructuredExtract catalyst.expressions.Sentences catalyst.expressions.Sequence
    catalyst.expressions.SessionWindow catalyst.expressions.Sha1 catalyst.expressions.Sha2
    catalyst.expressions.ShiftLeft catalyst.expressions.ShiftRight catalyst.expressions.ShiftRightUnsigned
    catalyst.expressions.Shuffle catalyst.expressions.Signum catalyst.expressions.Sin catalyst.expressions.Sinh
    catalyst.expressions.Size catalyst.expressions.Slice catalyst.expressions.SortArray
    catalyst.expressions.SortOrder catalyst.expressions.SoundEx catalyst.expressions.SparkPartitionID
    catalyst.expressions.SpecifiedWindowFrame catalyst.expressions.SplitPart catalyst.expressions.Sqrt
    catalyst.expressions.Stack catalyst.expressions.StartsWith catalyst.expressions.StringDecode
    catalyst.expressions.StringInstr catalyst.expressions.StringInstrWithOccurrence
    catalyst.expressions.StringLPad catalyst.expressions.StringLocate catalyst.expressions.StringRPad
    catalyst.expressions.StringRepeat catalyst.expressions.StringReplace catalyst.expressions.StringSpace
    catalyst.expressions.StringSplit catalyst.expressions.StringSplitSQL catalyst.expressions.StringToMap
    catalyst.expressions.StringTranslate catalyst.expressions.StringTrim catalyst.expressions.StringTrimBoth
    catalyst.expressions.StringTrimLeft catalyst.expressions.StringTrimRight catalyst.expressions.StructsToCsv
    catalyst.expressions.StructsToJson catalyst.expressions.StructsToXml catalyst.expressions.Substring
    catalyst.expressions.SubstringIndex catalyst.expressions.Subtract catalyst.expressions.SubtractDates
    catalyst.expressions.SubtractTimes catalyst.expressions.SubtractTimestamps catalyst.expressions.Tan
    catalyst.expressions.Tanh catalyst.expressions.ThetaDifference catalyst.expressions.ThetaIntersection
    catalyst.expressions.ThetaSketchEstimate catalyst.expressions.ThetaUnion
    catalyst.expressions.TimeAddInterval catalyst.expressions.TimeBucket catalyst.expressions.TimeDiff
    catalyst.expressions.TimeFromMicros catalyst.expressions.TimeFromMillis catalyst.expressions.TimeFromSeconds
    catalyst.expressions.TimeToMicros catalyst.expressions.TimeToMillis catalyst.expressions.TimeToSeconds
    catalyst.expressions.TimeTrunc catalyst.expressions.TimeWindow catalyst.expressions.TimestampAdd
    catalyst.expressions.TimestampAddInterval catalyst.expressions.TimestampAddYMInterval
    catalyst.expressions.TimestampDiff catalyst.expressions.ToBinary catalyst.expressions.ToCharacter
    catalyst.expressions.ToDegrees catalyst.expressions.ToNumber catalyst.expressions.ToPrettyString
    catalyst.expressions.ToRadians catalyst.expressions.ToTime catalyst.expressions.ToUTCTimestamp
    catalyst.expressions.ToUnixTimestamp catalyst.expressions.TransformKeys catalyst.expressions.TransformValues
    catalyst.expressions.TruncDate catalyst.expressions.TruncTimestamp catalyst.expressions.TryAdd
    catalyst.expressions.TryAesDecrypt catalyst.expressions.TryDivide catalyst.expressions.TryElementAt
    catalyst.expressions.TryEval catalyst.expressions.TryMakeInterval catalyst.expressions.TryMakeTimestamp
    catalyst.expressions.TryMakeTimestampFromDateTime catalyst.expressions.TryMod
    catalyst.expressions.TryMultiply catalyst.expressions.TryParseUrl catalyst.expressions.TrySubtract
    catalyst.expressions.TryToBinary catalyst.expressions.TryToNumber catalyst.expressions.TryUrlDecode
    catalyst.expressions.TryValidateUTF8 catalyst.expressions.TupleDifferenceDouble
    catalyst.expressions.TupleDifferenceInteger catalyst.expressions.TupleDifferenceThetaDouble
    catalyst.expressions.TupleDifferenceThetaInteger catalyst.expressions.TupleIntersectionDouble
    catalyst.expressions.TupleIntersectionInteger catalyst.expressions.TupleIntersectionThetaDouble
    catalyst.expressions.TupleIntersectionThetaInteger catalyst.expressions.TupleSketchEstimateDouble
    catalyst.expressions.TupleSketchEstimateInteger catalyst.expressions.TupleSketchSummaryDouble
    catalyst.expressions.TupleSketchSummaryInteger catalyst.expressions.TupleSketchThetaDouble
    catalyst.expressions.TupleSketchThetaInteger catalyst.expressions.TupleUnionDouble
    catalyst.expressions.TupleUnionInteger catalyst.expressions.TupleUnionThetaDouble
    catalyst.expressions.TupleUnionThetaInteger catalyst.expressions.TypeOf catalyst.expressions.UnBase32
    catalyst.expressions.UnBase64 catalyst.expressions.UnaryMinus catalyst.expressions.UnaryPositive
    catalyst.expressions.UnboundedFollowing$ catalyst.expressions.UnboundedPreceding$ catalyst.expressions.Unhex
    catalyst.expressions.Uniform catalyst.expressions.UnixDate catalyst.expressions.UnixMicros
    catalyst.expressions.UnixMillis catalyst.expressions.UnixNanos catalyst.expressions.UnixSeconds
    catalyst.expressions.UnixTimestamp catalyst.expressions.Unnest catalyst.expressions.UnresolvedCollation
    catalyst.expressions.UnresolvedNamedLambdaVariable catalyst.expressions.UnresolvedWindowExpression
    catalyst.expressions.UnscaledValue catalyst.expressions.UnspecifiedFrame$ catalyst.expressions.UpCast
    catalyst.expressions.UpdateFields catalyst.expressions.Upper catalyst.expressions.UrlDecode
    catalyst.expressions.UrlEncode catalyst.expressions.Uuid catalyst.expressions.ValidateUTF8
    catalyst.expressions.VectorAvg catalyst.expressions.VectorCosineSimilarity
    catalyst.expressions.VectorInnerProduct catalyst.expressions.VectorL2Distance
    catalyst.expressions.VectorNorm catalyst.expressions.VectorNormalize catalyst.expressions.VectorSum
    catalyst.expressions.WeekDay catalyst.expressions.WeekOfYear catalyst.expressions.WidthBucket
    catalyst.expressions.WindowExpression catalyst.expressions.WindowSpecDefinition
    catalyst.expressions.WindowTime catalyst.expressions.With catalyst.expressions.WithField
    catalyst.expressions.XmlToStructs catalyst.expressions.XxHash64 catalyst.expressions.Year
    catalyst.expressions.YearOfWeek catalyst.expressions.ZeroIfNull catalyst.expressions.ZipWith
    catalyst.expressions.aggregate.AggregateExpression catalyst.expressions.aggregate.AnyValue
    catalyst.expressions.aggregate.ApproxTopK catalyst.expressions.aggregate.ApproxTopKAccumulate
    catalyst.expressions.aggregate.ApproxTopKCombine catalyst.expressions.aggregate.ApproximatePercentile
    catalyst.expressions.aggregate.Average catalyst.expressions.aggregate.BitAndAgg
    catalyst.expressions.aggregate.BitOrAgg catalyst.expressions.aggregate.BitXorAgg
    catalyst.expressions.aggregate.BoolAnd catalyst.expressions.aggregate.BoolOr
    catalyst.expressions.aggregate.CollectList catalyst.expressions.aggregate.CollectSet
    catalyst.expressions.aggregate.CollectUnion catalyst.expressions.aggregate.Corr
    catalyst.expressions.aggregate.Count catalyst.expressions.aggregate.CountIf
    catalyst.expressions.aggregate.CountMinSketchAgg catalyst.expressions.aggregate.CovPopulation
    catalyst.expressions.aggregate.CovSample catalyst.expressions.aggregate.First
    catalyst.expressions.aggregate.HistogramNumeric catalyst.expressions.aggregate.HllSketchAgg
    catalyst.expressions.aggregate.HllUnionAgg catalyst.expressions.aggregate.HyperLogLogPlusPlus
    catalyst.expressions.aggregate.KllMergeAggBigint catalyst.expressions.aggregate.KllMergeAggDouble
    catalyst.expressions.aggregate.KllMergeAggFloat catalyst.expressions.aggregate.KllSketchAggBigint
    catalyst.expressions.aggregate.KllSketchAggDouble catalyst.expressions.aggregate.KllSketchAggFloat
    catalyst.expressions.aggregate.Kurtosis catalyst.expressions.aggregate.Last
    catalyst.expressions.aggregate.ListAgg catalyst.expressions.aggregate.Max
    catalyst.expressions.aggregate.MaxBy catalyst.expressions.aggregate.MaxMinByK
    catalyst.expressions.aggregate.Median catalyst.expressions.aggregate.Min
    catalyst.expressions.aggregate.MinBy catalyst.expressions.aggregate.Mode
    catalyst.expressions.aggregate.NoOp$ catalyst.expressions.aggregate.Percentile
    catalyst.expressions.aggregate.PercentileCont catalyst.expressions.aggregate.PercentileDisc
    catalyst.expressions.aggregate.PivotFirst catalyst.expressions.aggregate.RegrAvgX
    catalyst.expressions.aggregate.RegrAvgY catalyst.expressions.aggregate.RegrCount
    catalyst.expressions.aggregate.RegrIntercept catalyst.expressions.aggregate.RegrR2
    catalyst.expressions.aggregate.RegrReplacement catalyst.expressions.aggregate.RegrSXX
    catalyst.expressions.aggregate.RegrSXY catalyst.expressions.aggregate.RegrSYY
    catalyst.expressions.aggregate.RegrSlope catalyst.expressions.aggregate.Skewness
    catalyst.expressions.aggregate.StddevPop catalyst.expressions.aggregate.StddevSamp
    catalyst.expressions.aggregate.Sum catalyst.expressions.aggregate.ThetaIntersectionAgg
    catalyst.expressions.aggregate.ThetaSketchAgg catalyst.expressions.aggregate.ThetaUnionAgg
    catalyst.expressions.aggregate.TupleIntersectionAggDouble
    catalyst.expressions.aggregate.TupleIntersectionAggInteger
    catalyst.expressions.aggregate.TupleSketchAggDouble catalyst.expressions.aggregate.TupleSketchAggInteger
    catalyst.expressions.aggregate.TupleUnionAggDouble catalyst.expressions.aggregate.TupleUnionAggInteger
    catalyst.expressions.aggregate.VariancePop catalyst.expressions.aggregate.VarianceSamp
    catalyst.expressions.objects.Invoke catalyst.expressions.objects.StaticInvoke
    catalyst.expressions.st.ST_AsBinary catalyst.expressions.st.ST_GeogFromWKB
    catalyst.expressions.st.ST_GeomFromWKB catalyst.expressions.st.ST_SetSrid catalyst.expressions.st.ST_Srid
    catalyst.expressions.variant.IsValidVariant catalyst.expressions.variant.IsVariantNull
    catalyst.expressions.variant.ParseJson catalyst.expressions.variant.SchemaOfVariant
    catalyst.expressions.variant.SchemaOfVariantAgg catalyst.expressions.variant.ToVariantObject
    catalyst.expressions.variant.UnwrapVariantCastError catalyst.expressions.variant.VariantArrayAppend
    catalyst.expressions.variant.VariantDelete catalyst.expressions.variant.VariantExplode
    catalyst.expressions.variant.VariantGet catalyst.expressions.variant.VariantInsert
    catalyst.expressions.variant.VariantSet catalyst.expressions.variant.VariantStripNulls
    catalyst.optimizer.NormalizeNaNAndZero
""")

REFUSED: Mapping[str, str] = classed(
    {
        reasons.CALLS_JAVA: """
        catalyst.expressions.CallMethodViaReflection catalyst.expressions.TryReflect
    """,
        reasons.READS_BY_OPTION: """
        catalyst.expressions.FromAvro catalyst.expressions.FromProtobuf catalyst.expressions.SchemaOfAvro
        catalyst.expressions.ToAvro catalyst.expressions.ToProtobuf
    """,
        reasons.READS_BY_VALUE: """
        catalyst.expressions.xml.XPathBoolean catalyst.expressions.xml.XPathDouble
        catalyst.expressions.xml.XPathFloat catalyst.expressions.xml.XPathInt
        catalyst.expressions.xml.XPathList catalyst.expressions.xml.XPathLong
        catalyst.expressions.xml.XPathShort catalyst.expressions.xml.XPathString
    """,
        reasons.OF_THE_SERVER: """
        catalyst.expressions.CurrentCatalog catalyst.expressions.CurrentDatabase
        catalyst.expressions.CurrentPath catalyst.expressions.CurrentUser catalyst.expressions.SparkVersion
    """,
        reasons.OF_THE_FILES: """
        catalyst.expressions.InputFileBlockLength catalyst.expressions.InputFileBlockStart
        catalyst.expressions.InputFileName
    """,
        reasons.OF_THE_SESSION: """
        catalyst.analysis.SQLFunctionExpression catalyst.analysis.SQLScalarFunction
        catalyst.expressions.Collations catalyst.expressions.CursorReference
        catalyst.expressions.OuterScopeReference catalyst.expressions.SQLKeywords
        catalyst.expressions.UnresolvedCursor catalyst.expressions.VariableReference
        catalyst.expressions.aggregate.Measure
    """,
        reasons.COMPUTED_NAME: """
        catalyst.analysis.ExpressionWithUnresolvedIdentifier
    """,
        reasons.PARAMETERS: """
        catalyst.analysis.NamedParameter catalyst.analysis.PosParameter
    """,
        reasons.BY_STEPS: """
        catalyst.expressions.ApplyFunctionExpression catalyst.expressions.ExternalUserDefinedFunction
        catalyst.expressions.FunctionTableSubqueryArgumentExpression catalyst.expressions.PrettyPythonUDF
        catalyst.expressions.PythonUDAF catalyst.expressions.PythonUDF catalyst.expressions.PythonUDTF
        catalyst.expressions.ScalaUDF catalyst.expressions.TranspiledPythonUDF
        catalyst.expressions.TranspiledUDFParameter catalyst.expressions.UnresolvedPolymorphicPythonUDTF
        catalyst.expressions.UserDefinedGenerator execution.aggregate.ComplexTypedAggregateExpression
        execution.aggregate.ScalaAggregator execution.aggregate.ScalaUDAF
        execution.aggregate.SimpleTypedAggregateExpression
    """,
        reasons.HIVE: """
        hive.HiveGenericUDF hive.HiveGenericUDTF hive.HiveSimpleUDF hive.HiveUDAFFunction
    """,
        reasons.INTERNAL: """
        catalyst.analysis.CdcAssertCommitTimestampNotNull catalyst.analysis.GetColumnByOrdinal
        catalyst.analysis.GetViewColumnByNameAndOrdinal catalyst.analysis.LazyExpression
        catalyst.analysis.ResolvedFieldName catalyst.analysis.ResolvedFieldPosition
        catalyst.analysis.ResolvedPartitionSpec catalyst.analysis.UnresolvedDataFrameStar
        catalyst.analysis.UnresolvedDeserializer catalyst.analysis.UnresolvedFieldName
        catalyst.analysis.UnresolvedFieldPosition catalyst.analysis.UnresolvedPartitionSpec
        catalyst.expressions.ArrayBinarySearch catalyst.expressions.BloomFilterMightContain
        catalyst.expressions.BoundReference catalyst.expressions.Bucket
        catalyst.expressions.CastTimestampNTZToLong catalyst.expressions.CheckConstraint
        catalyst.expressions.CheckInvariant catalyst.expressions.CheckOverflowInSum
        catalyst.expressions.CheckOverflowInTableInsert catalyst.expressions.CollationAwareMurmur3Hash
        catalyst.expressions.CollationAwareXxHash64 catalyst.expressions.CollationKey
        catalyst.expressions.Days catalyst.expressions.DecimalAddNoOverflowCheck
        catalyst.expressions.DecimalDivideWithOverflowCheck
        catalyst.expressions.DecimalSubtractNoOverflowCheck catalyst.expressions.DirectShufflePartitionID
        catalyst.expressions.DistributedSequenceID catalyst.expressions.DynamicPruningExpression
        catalyst.expressions.DynamicPruningSubquery catalyst.expressions.EWM
        catalyst.expressions.ExpressionProxy catalyst.expressions.ForeignKeyConstraint
        catalyst.expressions.HiveHash catalyst.expressions.Hours catalyst.expressions.Months
        catalyst.expressions.NullIndex catalyst.expressions.PrimaryKeyConstraint
        catalyst.expressions.PrintToStderr catalyst.expressions.SortPrefix catalyst.expressions.ToJavaArray
        catalyst.expressions.TransformExpression catalyst.expressions.UniqueConstraint
        catalyst.expressions.UnresolvedExistsPlanId catalyst.expressions.UnresolvedInSubqueryPlanId
        catalyst.expressions.UnresolvedScalarSubqueryPlanId catalyst.expressions.UnresolvedTableArgPlanId
        catalyst.expressions.UnwrapUDT catalyst.expressions.Years
        catalyst.expressions.aggregate.ApproxCountDistinctForIntervals
        catalyst.expressions.aggregate.BloomFilterAggregate catalyst.expressions.aggregate.CollectTopK
        catalyst.expressions.aggregate.PandasCovar catalyst.expressions.aggregate.PandasKurtosis
        catalyst.expressions.aggregate.PandasMode catalyst.expressions.aggregate.PandasProduct
        catalyst.expressions.aggregate.PandasSkewness catalyst.expressions.aggregate.PandasStddev
        catalyst.expressions.aggregate.PandasVariance catalyst.expressions.aggregate.Product
        catalyst.expressions.aggregate.V2Aggregator catalyst.expressions.objects.AssertNotNull
        catalyst.expressions.objects.CatalystToExternalMap catalyst.expressions.objects.CreateExternalRow
        catalyst.expressions.objects.DecodeUsingSerializer
        catalyst.expressions.objects.EncodeUsingSerializer
        catalyst.expressions.objects.ExternalMapToCatalyst catalyst.expressions.objects.GetExternalRowField
        catalyst.expressions.objects.InitializeJavaBean catalyst.expressions.objects.LambdaVariable
        catalyst.expressions.objects.MapObjects catalyst.expressions.objects.NewInstance
        catalyst.expressions.objects.UnresolvedCatalystToExternalMap
        catalyst.expressions.objects.UnresolvedMapObjects catalyst.expressions.objects.UnwrapOption
        catalyst.expressions.objects.ValidateExternalType catalyst.expressions.objects.WrapOption
        catalyst.optimizer.ScalarSubqueryReference catalyst.plans.logical.AlterColumnSpec
        catalyst.plans.logical.Assignment catalyst.plans.logical.ColumnDefinition
        catalyst.plans.logical.DefaultValueExpression catalyst.plans.logical.DeleteAction
        catalyst.plans.logical.GeneratedColumnExpression catalyst.plans.logical.InsertAction
        catalyst.plans.logical.InsertReplaceOn catalyst.plans.logical.InsertReplaceUsing
        catalyst.plans.logical.InsertReplaceWhere catalyst.plans.logical.InsertStarAction
        catalyst.plans.logical.MergeRows$Discard catalyst.plans.logical.MergeRows$Keep
        catalyst.plans.logical.MergeRows$Split catalyst.plans.logical.OptionList
        catalyst.plans.logical.QualifiedColType catalyst.plans.logical.UnresolvedTableSpec
        catalyst.plans.logical.UpdateAction catalyst.plans.logical.UpdateStarAction
        catalyst.plans.physical.CoalescedHashPartitioning
        catalyst.plans.physical.CoalescedNullAwareHashPartitioning catalyst.plans.physical.HashPartitioning
        catalyst.plans.physical.KeyedPartitioning catalyst.plans.physical.NullAwareHashPartitioning
        catalyst.plans.physical.PartitioningCollection catalyst.plans.physical.RangePartitioning
        catalyst.plans.physical.ShufflePartitionIdPassThrough classic.ColumnNodeExpression
        execution.InSubqueryExec execution.ScalarSubquery execution.datasources.parquet.ScalarCastHelper
        execution.stat.CollectFrequentItems
    """,
    }
)
