"""Every logical plan of Spark: what a query may consist of, and what it may not, with the reason.

Names are those of classes below `org.apache.spark.sql`. A class in neither table is refused; a test goes through all.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.components.shared.spark_sql import reasons
from penstock.components.shared.spark_sql.reasons import classed, names

ALLOWED = names("""
    catalyst.analysis.ResolvedInlineTable catalyst.analysis.UnresolvedHaving
    catalyst.analysis.UnresolvedInlineTable catalyst.analysis.UnresolvedQualify
    catalyst.analysis.UnresolvedRelation catalyst.analysis.UnresolvedSubqueryColumnAliases
    catalyst.analysis.UnresolvedTVFAliases catalyst.analysis.UnresolvedTableValuedFunction
    catalyst.expressions.PipeOperator catalyst.plans.logical.Aggregate catalyst.plans.logical.AsOfJoin
    catalyst.plans.logical.BinBy catalyst.plans.logical.CTERelationDef catalyst.plans.logical.CTERelationRef
    catalyst.plans.logical.DataFrameDropColumns catalyst.plans.logical.Distinct catalyst.plans.logical.Except
    catalyst.plans.logical.Expand catalyst.plans.logical.Filter catalyst.plans.logical.Generate
    catalyst.plans.logical.GlobalLimit catalyst.plans.logical.Intersect catalyst.plans.logical.Join
    catalyst.plans.logical.LateralJoin catalyst.plans.logical.LimitAll catalyst.plans.logical.LocalLimit
    catalyst.plans.logical.LocalRelation catalyst.plans.logical.NearestByJoin catalyst.plans.logical.Offset
    catalyst.plans.logical.OneRowRelation catalyst.plans.logical.Pivot catalyst.plans.logical.Project
    catalyst.plans.logical.Range catalyst.plans.logical.RebalancePartitions catalyst.plans.logical.Repartition
    catalyst.plans.logical.RepartitionByExpression catalyst.plans.logical.ResolvedHint
    catalyst.plans.logical.Sample catalyst.plans.logical.Sort catalyst.plans.logical.Subquery
    catalyst.plans.logical.SubqueryAlias catalyst.plans.logical.Tail catalyst.plans.logical.Union
    catalyst.plans.logical.Unpivot catalyst.plans.logical.UnresolvedBinBy catalyst.plans.logical.UnresolvedHint
    catalyst.plans.logical.UnresolvedWith catalyst.plans.logical.Window catalyst.plans.logical.WithCTE
""")

REFUSED: Mapping[str, str] = classed(
    {
        reasons.RUNS_PROGRAM: """
        catalyst.plans.logical.ScriptTransformation
    """,
        reasons.COMPUTED_NAME: """
        catalyst.analysis.PlanWithUnresolvedIdentifier
    """,
        reasons.NAMED_WINDOW: """
        catalyst.plans.logical.WithWindowDefinition
    """,
        reasons.RECURSION: """
        catalyst.plans.logical.UnionLoop catalyst.plans.logical.UnionLoopRef
    """,
        reasons.PARAMETERS: """
        catalyst.analysis.GeneralParameterizedQuery catalyst.analysis.NameParameterizedQuery
        catalyst.analysis.PosParameterizedQuery
    """,
        reasons.BY_STEPS: """
        catalyst.plans.logical.AppendColumns catalyst.plans.logical.AppendColumnsWithObject
        catalyst.plans.logical.ArrowEvalPython catalyst.plans.logical.ArrowEvalPythonUDTF
        catalyst.plans.logical.AttachDistributedSequence catalyst.plans.logical.BatchEvalPython
        catalyst.plans.logical.BatchEvalPythonUDTF catalyst.plans.logical.CoGroup
        catalyst.plans.logical.CollectMetrics catalyst.plans.logical.Deduplicate
        catalyst.plans.logical.DeduplicateWithinWatermark catalyst.plans.logical.DeserializeToObject
        catalyst.plans.logical.EventTimeWatermark catalyst.plans.logical.FlatMapCoGroupsInArrow
        catalyst.plans.logical.FlatMapCoGroupsInPandas catalyst.plans.logical.FlatMapGroupsInArrow
        catalyst.plans.logical.FlatMapGroupsInPandas catalyst.plans.logical.FlatMapGroupsInPandasWithState
        catalyst.plans.logical.FlatMapGroupsInR catalyst.plans.logical.FlatMapGroupsInRWithArrow
        catalyst.plans.logical.FlatMapGroupsWithState catalyst.plans.logical.MapElements
        catalyst.plans.logical.MapGroups catalyst.plans.logical.MapInArrow
        catalyst.plans.logical.MapInPandas catalyst.plans.logical.MapPartitions
        catalyst.plans.logical.MapPartitionsExternalUDF catalyst.plans.logical.MapPartitionsInR
        catalyst.plans.logical.MapPartitionsInRWithArrow catalyst.plans.logical.SequentialStreamingUnion
        catalyst.plans.logical.SerializeFromObject catalyst.plans.logical.TransformWithState
        catalyst.plans.logical.TransformWithStateInPySpark catalyst.plans.logical.Transpose
        catalyst.plans.logical.TypedFilter catalyst.plans.logical.UpdateEventTimeWatermarkColumn
        catalyst.plans.logical.WindowGroupLimit catalyst.plans.logical.Zip
    """,
        reasons.RELATIONS: """
        catalyst.analysis.NamedStreamingRelation catalyst.analysis.UnresolvedDeduplicate
        catalyst.analysis.UnresolvedEventTimeWatermark catalyst.analysis.UnresolvedTranspose
        catalyst.plans.logical.EmptyRelation catalyst.plans.logical.View
        catalyst.streaming.StreamingRelationV2 execution.ExternalRDD execution.LogicalRDD
        execution.columnar.InMemoryRelation execution.datasources.LogicalRelation
        execution.datasources.v2.DataSourceV2Relation execution.datasources.v2.DataSourceV2ScanRelation
        execution.datasources.v2.StreamingDataSourceV2Relation
        execution.datasources.v2.StreamingDataSourceV2ScanRelation execution.streaming.runtime.OffsetHolder
        execution.streaming.runtime.StreamingExecutionRelation execution.streaming.runtime.StreamingRelation
        execution.streaming.sources.MemoryPlan
    """,
        reasons.OTHER_TABLES: """
        catalyst.analysis.RelationChanges catalyst.analysis.RelationTimeTravel
        catalyst.analysis.ResolvedPersistentView catalyst.analysis.ResolvedTable
        catalyst.analysis.ResolvedTempView catalyst.analysis.SQLFunctionNode
        catalyst.analysis.SQLTableFunction catalyst.analysis.UnresolvedTable
        catalyst.analysis.UnresolvedTableOrView catalyst.analysis.UnresolvedView
        catalyst.analysis.V2ChangelogReference catalyst.analysis.V2TableReference
        catalyst.analysis.resolver.UnresolvedCteRelationRef catalyst.catalog.HiveTableRelation
        catalyst.catalog.TemporaryViewRelation catalyst.catalog.UnresolvedCatalogRelation
        catalyst.plans.logical.SQLFunctionNode catalyst.plans.logical.UnresolvedDataSource
        metricview.logical.MetricViewPlaceholder metricview.logical.ResolvedMetricView
    """,
        reasons.OF_THE_SESSION: """
        catalyst.plans.logical.PythonWorkerLogs
    """,
        reasons.INTERNAL: """
        catalyst.encoders.DummyExpressionHolder catalyst.optimizer.NonGroupingAggregateReference
        catalyst.optimizer.OrderedJoin catalyst.plans.logical.DomainJoin catalyst.plans.logical.ReturnAnswer
        execution.adaptive.LogicalQueryStage execution.datasources.v2.ScanBuilderHolder
    """,
        reasons.COMMAND: """
        catalyst.analysis.CurrentNamespace$ catalyst.analysis.ResolvedIdentifier
        catalyst.analysis.ResolvedNamespace catalyst.analysis.ResolvedNonPersistentFunc
        catalyst.analysis.ResolvedPersistentFunc catalyst.analysis.ResolvedProcedure
        catalyst.analysis.UnresolvedExecuteImmediate catalyst.analysis.UnresolvedFunctionName
        catalyst.analysis.UnresolvedIdentifier catalyst.analysis.UnresolvedInsertTarget
        catalyst.analysis.UnresolvedNamespace catalyst.analysis.UnresolvedProcedure
        catalyst.plans.logical.AddCheckConstraint catalyst.plans.logical.AddColumns
        catalyst.plans.logical.AddConstraint catalyst.plans.logical.AddPartitions
        catalyst.plans.logical.AlterColumns catalyst.plans.logical.AlterTableClusterBy
        catalyst.plans.logical.AlterTableCollation catalyst.plans.logical.AlterViewAs
        catalyst.plans.logical.AlterViewSchemaBinding catalyst.plans.logical.AnalyzeColumn
        catalyst.plans.logical.AnalyzeTable catalyst.plans.logical.AnalyzeTables
        catalyst.plans.logical.AppendData catalyst.plans.logical.AutoCdcInto
        catalyst.plans.logical.CacheTable catalyst.plans.logical.CacheTableAsSelect
        catalyst.plans.logical.Call catalyst.plans.logical.CloseCursor catalyst.plans.logical.CommandResult
        catalyst.plans.logical.CommentOnNamespace catalyst.plans.logical.CommentOnTable
        catalyst.plans.logical.CompoundBody catalyst.plans.logical.CreateFlowCommand
        catalyst.plans.logical.CreateFunction catalyst.plans.logical.CreateIndex
        catalyst.plans.logical.CreateMaterializedViewAsSelect catalyst.plans.logical.CreateNamespace
        catalyst.plans.logical.CreateStreamingTable catalyst.plans.logical.CreateStreamingTableAsSelect
        catalyst.plans.logical.CreateStreamingTableAutoCdc catalyst.plans.logical.CreateTable
        catalyst.plans.logical.CreateTableAsSelect catalyst.plans.logical.CreateTableLike
        catalyst.plans.logical.CreateUserDefinedFunction catalyst.plans.logical.CreateVariable
        catalyst.plans.logical.CreateView catalyst.plans.logical.DeclareCursor
        catalyst.plans.logical.DeleteFromTable catalyst.plans.logical.DeleteFromTableWithFilters
        catalyst.plans.logical.DescribeColumn catalyst.plans.logical.DescribeFunction
        catalyst.plans.logical.DescribeNamespace catalyst.plans.logical.DescribeRelation
        catalyst.plans.logical.DescribeTablePartition catalyst.plans.logical.DropColumns
        catalyst.plans.logical.DropConstraint catalyst.plans.logical.DropFunction
        catalyst.plans.logical.DropIndex catalyst.plans.logical.DropNamespace
        catalyst.plans.logical.DropPartitions catalyst.plans.logical.DropTable
        catalyst.plans.logical.DropVariable catalyst.plans.logical.DropView
        catalyst.plans.logical.ErrorCondition catalyst.plans.logical.ExceptionHandler
        catalyst.plans.logical.FetchCursor catalyst.plans.logical.ForStatement
        catalyst.plans.logical.IfElseStatement catalyst.plans.logical.InsertIntoDir
        catalyst.plans.logical.InsertIntoStatement catalyst.plans.logical.InsertOnlyMerge
        catalyst.plans.logical.IterateStatement catalyst.plans.logical.LeaveStatement
        catalyst.plans.logical.LoadData catalyst.plans.logical.LoopStatement
        catalyst.plans.logical.MergeIntoTable catalyst.plans.logical.MergeRows
        catalyst.plans.logical.MultiResult catalyst.plans.logical.NoopCommand
        catalyst.plans.logical.OpenCursor catalyst.plans.logical.OverwriteByExpression
        catalyst.plans.logical.OverwritePartitionsDynamic catalyst.plans.logical.RecoverPartitions
        catalyst.plans.logical.RefreshFunction catalyst.plans.logical.RefreshTable
        catalyst.plans.logical.RenameColumn catalyst.plans.logical.RenamePartitions
        catalyst.plans.logical.RenameTable catalyst.plans.logical.RepairTable
        catalyst.plans.logical.RepeatStatement catalyst.plans.logical.ReplaceColumns
        catalyst.plans.logical.ReplaceData catalyst.plans.logical.ReplaceTable
        catalyst.plans.logical.ReplaceTableAsSelect catalyst.plans.logical.SearchedCaseStatement
        catalyst.plans.logical.SetCatalogAndNamespace catalyst.plans.logical.SetNamespaceLocation
        catalyst.plans.logical.SetNamespaceProperties catalyst.plans.logical.SetTableLocation
        catalyst.plans.logical.SetTableProperties catalyst.plans.logical.SetTableSerDeProperties
        catalyst.plans.logical.SetVariable catalyst.plans.logical.SetViewProperties
        catalyst.plans.logical.ShowColumns catalyst.plans.logical.ShowCreateTable
        catalyst.plans.logical.ShowFunctions catalyst.plans.logical.ShowPartitions
        catalyst.plans.logical.ShowTablePartition catalyst.plans.logical.ShowTableProperties
        catalyst.plans.logical.ShowTables catalyst.plans.logical.ShowTablesExtended
        catalyst.plans.logical.ShowViews catalyst.plans.logical.SimpleCaseStatement
        catalyst.plans.logical.SingleStatement catalyst.plans.logical.TruncatePartition
        catalyst.plans.logical.TruncateTable catalyst.plans.logical.UncacheTable
        catalyst.plans.logical.UnresolvedInsert catalyst.plans.logical.UnsetTableProperties
        catalyst.plans.logical.UnsetViewProperties catalyst.plans.logical.UpdateTable
        catalyst.plans.logical.WhileStatement catalyst.plans.logical.WriteDelta
        catalyst.streaming.WriteToStream catalyst.streaming.WriteToStreamStatement
        execution.command.AddArchivesCommand execution.command.AddFilesCommand
        execution.command.AddJarsCommand execution.command.AlterDatabasePropertiesCommand
        execution.command.AlterDatabaseSetLocationCommand execution.command.AlterTableAddColumnsCommand
        execution.command.AlterTableAddPartitionCommand execution.command.AlterTableChangeColumnCommand
        execution.command.AlterTableChangeColumnCommentsCommand
        execution.command.AlterTableDropPartitionCommand execution.command.AlterTableRenameCommand
        execution.command.AlterTableRenamePartitionCommand
        execution.command.AlterTableSerDePropertiesCommand execution.command.AlterTableSetLocationCommand
        execution.command.AlterTableSetPropertiesCommand execution.command.AlterTableUnsetPropertiesCommand
        execution.command.AlterViewAsCommand execution.command.AlterViewSchemaBindingCommand
        execution.command.AnalyzeColumnCommand execution.command.AnalyzePartitionCommand
        execution.command.AnalyzeTableCommand execution.command.AnalyzeTablesCommand
        execution.command.ClearCacheCommand$ execution.command.CreateDataSourceTableAsSelectCommand
        execution.command.CreateDataSourceTableCommand execution.command.CreateDatabaseCommand
        execution.command.CreateFunctionCommand execution.command.CreateMetricViewCommand
        execution.command.CreateSQLFunctionCommand execution.command.CreateTableCommand
        execution.command.CreateTableLikeCommand execution.command.CreateViewCommand
        execution.command.DescribeColumnCommand execution.command.DescribeDatabaseCommand
        execution.command.DescribeFunctionCommand execution.command.DescribeProcedureCommand
        execution.command.DescribeQueryCommand execution.command.DescribeRelationJsonCommand
        execution.command.DescribeTableCommand execution.command.DropDatabaseCommand
        execution.command.DropFunctionCommand execution.command.DropTableCommand
        execution.command.DropTempViewCommand execution.command.ExplainCommand
        execution.command.ExternalCommandExecutor execution.command.InsertIntoDataSourceDirCommand
        execution.command.ListArchivesCommand execution.command.ListFilesCommand
        execution.command.ListJarsCommand execution.command.LoadDataCommand
        execution.command.RefreshFunctionCommand execution.command.RefreshTableCommand
        execution.command.RepairTableCommand execution.command.ResetCommand
        execution.command.SaveAsV1TableCommand execution.command.SetCatalogCommand
        execution.command.SetCommand execution.command.SetNamespaceCollationCommand
        execution.command.SetNamespaceCommand execution.command.SetPathCommand
        execution.command.ShowCatalogsCommand execution.command.ShowCollationsCommand
        execution.command.ShowColumnsCommand execution.command.ShowCreateTableAsSerdeCommand
        execution.command.ShowCreateTableCommand execution.command.ShowCurrentNamespaceCommand
        execution.command.ShowFunctionsCommand execution.command.ShowNamespacesCommand
        execution.command.ShowPartitionsCommand execution.command.ShowPartitionsJsonCommand
        execution.command.ShowProceduresCommand execution.command.ShowTablePropertiesCommand
        execution.command.ShowTablesCommand execution.command.ShowTablesJsonCommand
        execution.command.ShowViewsCommand execution.command.StreamingExplainCommand
        execution.command.TruncateTableCommand execution.command.UnsetNamespacePropertiesCommand
        execution.datasources.CreateTable execution.datasources.CreateTempViewUsing
        execution.datasources.InsertIntoDataSourceCommand
        execution.datasources.InsertIntoHadoopFsRelationCommand execution.datasources.RefreshResource
        execution.datasources.SaveIntoDataSourceCommand execution.datasources.WriteFiles
        execution.datasources.v2.WriteToDataSourceV2
        execution.streaming.continuous.WriteToContinuousDataSource
        execution.streaming.sources.WriteToMicroBatchDataSource
        execution.streaming.sources.WriteToMicroBatchDataSourceV1
        hive.execution.CreateHiveTableAsSelectCommand hive.execution.InsertIntoHiveDirCommand
        hive.execution.InsertIntoHiveTable metricview.logical.CreateMetricView
    """,
    }
)
