/** A table of a long list, which comes in pages from the newest on. */
import { type InfiniteData, useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Loading, Refused } from "./states";

export interface Column<T> {
  title: string;
  cell: (item: T) => ReactNode;
  className?: string;
}

interface Page<T> {
  items: T[];
  next: string | null;
}

interface Props<T> {
  what: string;
  queryKey: readonly unknown[];
  load: (after: string | undefined) => Promise<Page<T>>;
  columns: readonly Column<T>[];
  id: (item: T) => string | number;
  empty: ReactNode;
  every?: number;
}

export function Listed<T>({ what, queryKey, load, columns, id, empty, every }: Props<T>) {
  const found = useInfiniteQuery<Page<T>, Error, InfiniteData<Page<T>>, readonly unknown[], string | undefined>({
    queryKey,
    queryFn: ({ pageParam }) => load(pageParam),
    initialPageParam: undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    // Who reads far back is not disturbed, and the server is not asked for many pages again and again.
    refetchInterval: ({ state }) => ((state.data?.pages.length ?? 0) > 2 ? false : (every ?? false)),
  });
  if (found.error && !found.data) return <Refused error={found.error} again={() => void found.refetch()} />;
  if (!found.data) return <Loading what={what} />;
  const items = found.data.pages.flatMap((page) => page.items);
  if (items.length === 0) return <>{empty}</>;
  return (
    <>
      <Table caption={what} columns={columns} items={items} id={id} />
      {found.hasNextPage && (
        <p className="more">
          <button type="button" onClick={() => void found.fetchNextPage()} disabled={found.isFetchingNextPage}>
            {found.isFetchingNextPage ? "Loading…" : "Show older"}
          </button>
        </p>
      )}
    </>
  );
}

interface TableProps<T> {
  caption: string;
  columns: readonly Column<T>[];
  items: readonly T[];
  id: (item: T) => string | number;
}

/** On a phone each row becomes a card, whose cells carry the titles of their columns. */
export function Table<T>({ caption, columns, items, id }: TableProps<T>) {
  return (
    <div className="table-box">
      <table>
        <caption className="unseen">{caption}</caption>
        <thead>
          <tr>{columns.map(({ title, className }) => <th key={title} scope="col" className={className}>{title || <span className="unseen">Actions</span>}</th>)}</tr>
        </thead>
        <tbody>
          {items.map((item) => (
            <tr key={id(item)}>
              {columns.map(({ title, cell, className }) => <td key={title} data-title={title} className={className}>{cell(item)}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
